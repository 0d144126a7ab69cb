"""Kind of vessel from AIS position tracks: transformer over track points, data parallel over two processes."""
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

KINDS = ["cargo", "tanker", "fishing", "ferry", "tug"]


@dataclass
class Config:
    tracks: int = 2560
    shortest: int = 16
    longest: int = 256
    batch: int = 8
    epochs: int = 1
    width: int = 64
    layers: int = 2
    heads: int = 4
    lr: float = 1e-3
    world: int = 2
    seed: int = 31


def simulate_tracks(cfg):
    """Tracks as (points, 5): dx, dy, speed, turn, hours since the last point; ordered by number of points."""
    rng = np.random.default_rng(cfg.seed)
    speed = np.array([14.0, 12.0, 5.0, 18.0, 7.0])
    wiggle = np.array([0.02, 0.02, 0.35, 0.05, 0.20])
    tracks = []
    for _ in range(cfg.tracks):
        kind = int(rng.integers(len(KINDS)))
        n = int(rng.integers(cfg.shortest, cfg.longest + 1))
        turn = rng.normal(scale=wiggle[kind], size=n)
        course = np.cumsum(turn) + rng.uniform(0, 2 * np.pi)
        knots = np.abs(speed[kind] + 2.5 * rng.normal(size=n))
        gap = rng.exponential(0.2, n)
        points = np.stack([np.cos(course) * knots * gap, np.sin(course) * knots * gap,
                           knots / 10, turn, gap], 1).astype(np.float32)
        tracks.append((torch.from_numpy(points), kind))
    tracks.sort(key=lambda t: len(t[0]))
    return tracks


class Batches:
    """Batches of neighbours (so of like lengths, little padding), in a new order each epoch."""

    def __init__(self, tracks, batch, seed):
        self.tracks = tracks
        self.batch = batch
        self.seed = seed
        self.epoch = 0

    def __len__(self):
        return len(self.tracks) // self.batch

    def __iter__(self):
        order = np.random.default_rng((self.seed, self.epoch)).permutation(len(self))
        self.epoch += 1
        for b in order:
            rows = self.tracks[b * self.batch: (b + 1) * self.batch]
            points = pad_sequence([p for p, _ in rows], batch_first=True)
            lengths = torch.tensor([len(p) for p, _ in rows])
            yield points, lengths, torch.tensor([k for _, k in rows])


class TrackNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.lift = nn.Linear(5, cfg.width)
        self.position = nn.Embedding(cfg.longest, cfg.width)
        layer = nn.TransformerEncoderLayer(cfg.width, cfg.heads, 3 * cfg.width, dropout=0.0,
                                           activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(cfg.width), nn.Linear(cfg.width, len(KINDS)))

    def forward(self, points, lengths):
        empty = torch.arange(points.shape[1])[None] >= lengths[:, None]
        h = self.lift(points) + self.position.weight[: points.shape[1]]
        h = self.encoder(h, src_key_padding_mask=empty)
        h = h.masked_fill(empty[..., None], 0).sum(1) / lengths[:, None]
        return self.head(h)


def my_part(tracks, rank, world):
    per_rank = len(tracks) // world
    return tracks[rank * per_rank: (rank + 1) * per_rank]


def work(rank, cfg, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=cfg.world)
    torch.manual_seed(cfg.seed)
    batches = Batches(my_part(simulate_tracks(cfg), rank, cfg.world), cfg.batch, cfg.seed)
    model = nn.parallel.DistributedDataParallel(TrackNet(cfg))
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)

    step = 0
    tally = torch.zeros(2)
    dist.barrier()
    begin = time.perf_counter()
    for epoch in range(cfg.epochs):
        for points, lengths, kinds in batches:
            logits = model(points, lengths)
            loss = cross_entropy(logits, kinds)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            step += 1
            tally += torch.stack([loss.detach(), (logits.argmax(1) == kinds).float().mean()])
            if step % 25 == 0:
                dist.all_reduce(tally)
                mean_loss, accuracy = (tally / (25 * cfg.world)).tolist()
                if rank == 0:
                    print(f"epoch {epoch} step {step}: loss {mean_loss:.3f} accuracy {accuracy:.3f}", flush=True)
                tally.zero_()
    dist.barrier()
    spent = time.perf_counter() - begin
    if rank == 0:
        print(f"loop_s={spent:.3f} steps={step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        config = Config()
        mp.spawn(work, args=(config, os.path.join(folder, "rendezvous")), nprocs=config.world)
