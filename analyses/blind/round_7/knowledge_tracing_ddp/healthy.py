"""Deep knowledge tracing: will the student answer the next exercise correctly? LSTM, DDP on two CPU ranks."""
import datetime
import os
import sys
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Settings:
    students: int = 2400
    valid_students: int = 128
    skills: int = 110
    length: int = 110
    emb: int = 64
    hidden: int = 224
    batch: int = 48
    epochs: int = 3
    lr: float = 2e-3
    clip: float = 5.0
    check_every: int = 10
    world: int = 2
    seed: int = 29


def simulate_students(s: Settings, n: int, rng: np.random.Generator):
    """Item response model in which practice raises a skill."""
    difficulty = np.random.default_rng(s.seed).normal(0.0, 1.0, s.skills)
    ability = rng.normal(0.3, 0.8, (n, 1))
    skills = np.empty((n, s.length), dtype=np.int64)
    skills[:, 0] = rng.integers(s.skills, size=n)
    stay = rng.random((n, s.length)) < 0.6
    for t in range(1, s.length):
        skills[:, t] = np.where(stay[:, t], skills[:, t - 1], rng.integers(s.skills, size=n))
    practice = np.zeros((n, s.skills))
    correct = np.empty((n, s.length), dtype=np.float32)
    rows = np.arange(n)
    for t in range(s.length):
        k = skills[:, t]
        logit = ability[:, 0] - difficulty[k] + 0.35 * practice[rows, k]
        correct[:, t] = rng.random(n) < 1.0 / (1.0 + np.exp(-logit))
        practice[rows, k] += 1.0
    return torch.from_numpy(skills), torch.from_numpy(correct)


class DKT(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        self.n_skills = s.skills
        self.interaction = nn.Embedding(2 * s.skills, s.emb)
        self.query = nn.Embedding(s.skills, s.hidden)
        self.lstm = nn.LSTM(s.emb, s.hidden, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.bias = nn.Embedding(s.skills, 1)

    def forward(self, skills, correct):
        seen = skills[:, :-1] + self.n_skills * correct[:, :-1].long()
        state, _ = self.lstm(self.interaction(seen))
        nxt = skills[:, 1:]
        return (self.dropout(state) * self.query(nxt)).sum(-1) + self.bias(nxt).squeeze(-1)


class Shard:
    """The part of an epoch's permutation that belongs to a rank, in batches."""

    def __init__(self, skills, correct, batch, rank, world, seed):
        self.skills, self.correct = skills, correct
        self.batch, self.rank, self.world, self.seed = batch, rank, world, seed

    def epoch(self, number):
        g = torch.Generator().manual_seed(self.seed + number)
        mine = torch.randperm(len(self.skills), generator=g)[self.rank::self.world]
        for picks in mine[: len(mine) // self.batch * self.batch].split(self.batch):
            yield self.skills[picks], self.correct[picks]


def auc(scores, labels):
    order = scores.argsort()
    ranks = torch.empty(len(scores), dtype=torch.double)
    ranks[order] = torch.arange(1, len(scores) + 1, dtype=torch.double)
    pos = labels > 0.5
    n_pos, n_neg = pos.sum().double(), (~pos).sum().double()
    return ((ranks[pos].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg)).item()


@torch.no_grad()
def validate(model, skills, correct):
    model.eval()
    value = auc(model(skills, correct).flatten(), correct[:, 1:].flatten())
    model.train()
    return value


def main_worker(rank, rendezvous, s: Settings):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=s.world,
                            timeout=datetime.timedelta(seconds=60))
    torch.manual_seed(s.seed)
    rng = np.random.default_rng(s.seed + 1)
    skills, correct = simulate_students(s, s.students, rng)
    valid = simulate_students(s, s.valid_students, rng)
    shard = Shard(skills, correct, s.batch, rank, s.world, s.seed)

    model = DistributedDataParallel(DKT(s))
    optimizer = torch.optim.Adam(model.parameters(), lr=s.lr)
    criterion = nn.BCEWithLogitsLoss()
    criterion(model(skills[: s.batch], correct[: s.batch]), correct[: s.batch, 1:]).backward()
    optimizer.zero_grad(set_to_none=True)
    dist.barrier()

    step, t0 = 0, time.perf_counter()
    for epoch in range(s.epochs):
        for skill_batch, correct_batch in shard.epoch(epoch):
            logits = model(skill_batch, correct_batch)
            loss = criterion(logits, correct_batch[:, 1:])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), s.clip)
            optimizer.step()
            step += 1
            if step % s.check_every == 0:
                mean_loss = loss.detach() / s.world
                dist.all_reduce(mean_loss)
        score = validate(model.module, *(part[rank::s.world] for part in valid))
        if rank == 0:
            print(f"epoch {epoch} step {step} loss {mean_loss.item():.4f} auc {score:.4f}", file=sys.stderr)
    seconds = time.perf_counter() - t0
    if rank == 0:
        print("loop_s=%.3f steps=%d" % (seconds, step), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    settings = Settings()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(main_worker, args=(os.path.join(folder, "store"), settings), nprocs=settings.world)
