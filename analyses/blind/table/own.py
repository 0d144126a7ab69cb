"""Training loops of one's own, each with one fault of `table.toml`, or without it.

python own.py --fault ema [--healthy]
"""

from __future__ import annotations

import argparse
import math
import queue
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

Run = tuple[float, int]  # when the loop began, and its steps

def mlp(width: int = 384, depth: int = 4, n_in: int = 64, n_out: int = 10) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(n_in, width), nn.GELU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(width, n_out))

def table_of(n: int = 4096, n_in: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(n, n_in)
    return x, (x[:, :10] + 0.1 * torch.randn(n, 10)).argmax(1)

def train(model: nn.Module, steps: int, batch: int = 256, after: Any = None, data: Any = None) -> Run:
    x, y = data or table_of()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    start = time.perf_counter()
    for step in range(steps):
        rows = torch.randint(0, len(x), (batch,))
        loss = F.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if after:
            after(step)
    return start, steps

def gil(healthy: bool) -> Run:
    class Heartbeat(threading.Thread):
        def run(self) -> None:
            while True:
                self.digest = sum(math.sqrt(i) for i in range(20_000))
                if healthy:
                    time.sleep(1)

    Heartbeat(name="heartbeat", daemon=True).start()
    return train(mlp(), 80)

def fp64(healthy: bool) -> Run:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4096, 64))
    labels = torch.from_numpy(rows[:, :10].argmax(1))
    features = torch.from_numpy(rows)
    model = mlp(width=512)
    if healthy:
        features = features.float()
    else:
        model = model.double()  # "mat1 and mat2 must have the same dtype"
    return train(model, 80, data=(features, labels))

@torch.no_grad()
def evaluate(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    model.eval()
    hits = sum((model(a).argmax(1) == b).sum() for a, b in zip(x.split(512), y.split(512), strict=True))
    model.train()
    return float(hits) / len(y)

def evaluation(healthy: bool) -> Run:
    model, (x, y), best = mlp(), table_of(1024), 0.0

    def after(step: int) -> None:
        nonlocal best
        if not healthy or step % 100 == 99:
            best = max(best, evaluate(model, x, y))

    return train(model, 80, 128, after)

def checkpoint(healthy: bool) -> Run:
    model, folder = mlp(width=2048, depth=3), Path(tempfile.mkdtemp())
    def after(step: int) -> None:
        if step % (100 if healthy else 10) == 9:
            for name in ("last.pt", f"step{step // 50}.pt"):
                torch.save({"step": step, "model": model.state_dict()}, folder / name)

    return train(model, 90, 8, after)

def leak(healthy: bool) -> Run:
    model, (x, y) = mlp(width=512, depth=6), table_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    losses, start = [], time.perf_counter()
    for step in range(90):
        rows = torch.randint(0, len(x), (384,))
        loss = F.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward(retain_graph=not healthy)
        optimizer.step()
        losses.append(loss.item() if healthy else loss)
        if step % 30 == 29:
            print(f"step {step} mean loss {float(sum(losses) / len(losses)):.3f}")
    return start, 90

class Shards(IterableDataset[Any]):
    """Each worker reads a shard of its own; the last one lies on a slow disk."""

    def __init__(self, n: int, healthy: bool) -> None:
        self.n, self.healthy = n, healthy

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        info = get_worker_info()
        read_s = 0.12 if info.id == 3 and not self.healthy else 0.001
        for _ in range(self.n // 4):
            time.sleep(read_s)
            yield torch.randn(128, 64), random.randrange(10)

def from_loader(model: nn.Module, loader: DataLoader[Any], epochs: int) -> Run:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    steps, start = 0, time.perf_counter()
    for _ in range(epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x.view(-1, 64)), y.view(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
    return start, steps

def slow_worker(healthy: bool) -> Run:
    def collate(rows: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.cat([row[0] for row in rows])
        return x, x[:, :10].argmax(1)

    return from_loader(mlp(), DataLoader(Shards(240, healthy), batch_size=2, num_workers=4, collate_fn=collate), 1)

def restarted(healthy: bool) -> Run:
    data = TensorDataset(*table_of(2560))
    loader = DataLoader(data, batch_size=256, shuffle=True, num_workers=2, persistent_workers=healthy)
    return from_loader(mlp(), loader, 16)

class Scans(Dataset[Any]):
    """Pictures; one of a hundred is a scan of many pages."""

    def __init__(self, n: int, healthy: bool) -> None:
        self.x, self.y = table_of(n)
        rng = np.random.default_rng(1)
        self.pages = np.where(rng.random(n) < (0 if healthy else 0.01), 300, 1)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        page = self.decode(int(self.pages[index]))
        return self.x[index] + page, int(self.y[index])

    def decode(self, pages: int) -> float:
        return float(sum(np.sort(np.arange(20_000, dtype=np.float64) * 7919 % 10_007).mean() for _ in range(pages))) * 0

def rare_items(healthy: bool) -> Run:
    return from_loader(mlp(), DataLoader(Scans(2400, healthy), batch_size=16, shuffle=True), 1)

def threads(healthy: bool) -> Run:
    torch.set_num_threads(1 if healthy else 16)
    return train(mlp(width=256), 120, 256)

def loader_thread(healthy: bool) -> Run:
    batches: queue.Queue[torch.Tensor] = queue.Queue(maxsize=4)

    def prefetch() -> None:
        while True:
            time.sleep(0.001 if healthy else 0.1)  # the answer of a data base
            batches.put(torch.randn(256, 64))

    threading.Thread(target=prefetch, daemon=True).start()
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    start = time.perf_counter()
    for _ in range(100):
        x = batches.get()
        loss = F.cross_entropy(model(x), x[:, :10].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return start, 100

class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal by five steps of Newton and Schulz."""

    def __init__(self, params: Any, lr: float, stacked: bool) -> None:
        super().__init__(params, {"lr": lr})
        self.stacked = stacked

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            moments = []
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                moments.append(m.lerp_(p.grad, 0.05))
            updates = orthogonal(torch.stack(moments)) if self.stacked else [orthogonal(m) for m in moments]
            for p, update in zip(group["params"], updates, strict=True):
                p.add_(update, alpha=-group["lr"])

def orthogonal(g: torch.Tensor) -> torch.Tensor:
    x = g / (g.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x

def muon(healthy: bool) -> Run:
    model, (x, y) = mlp(width=48, depth=24), table_of()
    hidden = [p for p in model.parameters() if p.shape == (48, 48)]
    others = [p for p in model.parameters() if p.shape != (48, 48)]
    optimizers = [Muon(hidden, 0.02, healthy), torch.optim.AdamW(others, lr=1e-3, fused=True)]
    start = time.perf_counter()
    for _ in range(200):
        rows = torch.randint(0, len(x), (256,))
        loss = F.cross_entropy(model(x[rows]), y[rows])
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    return start, 200

class Clicks(nn.Module):
    """26 categories, a table each, or one table of all with offsets."""

    def __init__(self, one_table: bool, rows: int = 2000, n: int = 26, dim: int = 16) -> None:
        super().__init__()
        sizes = [rows * n] if one_table else [rows] * n
        self.tables = nn.ModuleList(nn.Embedding(size, dim, sparse=True) for size in sizes)
        self.register_buffer("offsets", torch.arange(n) * rows)
        self.top = mlp(128, 1, n * dim, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        if len(self.tables) == 1:
            found = self.tables[0](ids + self.offsets).flatten(1)
        else:
            found = torch.cat([table(ids[:, i]) for i, table in enumerate(self.tables)], 1)
        return self.top(found).squeeze(1)

def sparse_adam(healthy: bool) -> Run:
    model = Clicks(healthy)
    sparse = torch.optim.SparseAdam(model.tables.parameters(), lr=1e-2)
    dense = torch.optim.AdamW(model.top.parameters(), lr=1e-3, fused=True)
    ids, clicked = torch.randint(0, 2000, (8192, 26)), torch.randint(0, 2, (8192,)).float()
    start = time.perf_counter()
    for _ in range(250):
        rows = torch.randint(0, 8192, (256,))
        loss = F.binary_cross_entropy_with_logits(model(ids[rows]), clicked[rows])
        sparse.zero_grad()
        dense.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()
    return start, 250

def ema(healthy: bool) -> Run:
    model = mlp(width=32, depth=60)
    average = {name: value.clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def after(step: int) -> None:
        if healthy:
            torch._foreach_lerp_(list(average.values()), list(model.parameters()), 0.001)
        else:
            for name, value in model.state_dict().items():
                average[name] = 0.999 * average[name] + 0.001 * value

    return train(model, 300, 32, after)

def clipping(healthy: bool) -> Run:
    model, (x, y) = mlp(width=48, depth=40), table_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, foreach=True)
    start = time.perf_counter()
    for _ in range(250):
        rows = torch.randint(0, len(x), (64,))
        loss = F.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        if healthy:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        else:
            for p in model.parameters():
                nn.utils.clip_grad_norm_(p, 1.0)
        optimizer.step()
    return start, 250

class Reviews(Dataset[Any]):
    """Sentences, split into words when they are asked for, or once."""

    def __init__(self, healthy: bool) -> None:
        rng = random.Random(0)
        self.vocabulary = {f"word{i}": i for i in range(2000)}
        words = list(self.vocabulary)
        self.texts = [" ".join(rng.choices(words, k=40)) for _ in range(2048)]
        self.known = [self.encode(text) for text in self.texts] if healthy else []

    def encode(self, text: str) -> torch.Tensor:
        return torch.tensor([self.vocabulary.get(word.strip(".,!?"), 0) for word in text.lower().split()])

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        ids = self.known[index] if self.known else self.encode(self.texts[index])
        return ids, index % 10

def retokenising(healthy: bool) -> Run:
    model = nn.Sequential(nn.Embedding(2000, 64), nn.Flatten(), nn.Linear(40 * 64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    loader = DataLoader(Reviews(healthy), batch_size=64, shuffle=True)
    steps, start = 0, time.perf_counter()
    for _ in range(12):
        for ids, label in loader:
            loss = F.cross_entropy(model(ids), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
    return start, steps

def distillation(healthy: bool) -> Run:
    teacher, student, (x, y) = mlp(width=384), mlp(width=256), table_of()
    warm = torch.optim.AdamW(teacher[-1].parameters(), lr=1e-3, fused=True)
    for _ in range(300):  # the teacher's head settles on few rows first
        rows = torch.randint(0, len(x), (4,))
        warm.zero_grad()
        F.cross_entropy(teacher(x[rows]), y[rows]).backward()
        warm.step()
    teacher.eval()
    with torch.no_grad():
        kept = teacher(x) if healthy else None
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3, fused=True)
    start = time.perf_counter()
    for _ in range(200):
        rows = torch.randint(0, len(x), (256,))
        with torch.no_grad():
            target = teacher(x[rows]) if kept is None else kept[rows]
        loss = F.kl_div(student(x[rows]).log_softmax(1), target.softmax(1), reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return start, 200

def ppo(healthy: bool) -> Run:
    policy, value = mlp(64, 2, 8, 4), mlp(64, 2, 8, 1)
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=3e-4, fused=True)
    state, steps, start = torch.zeros(16, 8), 0, time.perf_counter()
    for _ in range(15):
        states, actions, rewards = [], [], []
        for _ in range(32):
            with torch.no_grad():
                if healthy:
                    action = torch.distributions.Categorical(logits=policy(state)).sample()
                else:
                    action = torch.stack([torch.distributions.Categorical(logits=policy(s)).sample() for s in state])
            states.append(state)
            actions.append(action)
            state = 0.9 * state + 0.1 * torch.randn(16, 8) + 0.01 * action[:, None]
            rewards.append(-state.square().sum(1))
        s, a, r = torch.cat(states), torch.cat(actions), torch.cat(rewards)
        with torch.no_grad():
            advantage = r - value(s)[:, 0]
            old = torch.distributions.Categorical(logits=policy(s)).log_prob(a)
        for _ in range(4):
            for rows in torch.randperm(len(s)).split(64):
                ratio = (torch.distributions.Categorical(logits=policy(s[rows])).log_prob(a[rows]) - old[rows]).exp()
                gain = torch.min(ratio * advantage[rows], ratio.clamp(0.8, 1.2) * advantage[rows]).mean()
                loss = F.mse_loss(value(s[rows])[:, 0], r[rows]) - gain
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                steps += 1
    return start, steps

def logging(healthy: bool) -> Run:
    model, folder = mlp(width=512), Path(tempfile.mkdtemp())

    def after(step: int) -> None:
        if step % (100 if healthy else 20) == 19:
            for name, p in model.named_parameters():
                counts, edges = np.histogram(p.detach().numpy(), bins=64)
                np.savez(folder / f"{name}-{step}.npz", counts=counts, edges=edges)

    return train(model, 500, 128, after)

def own_profiler(healthy: bool) -> Run:
    if healthy:
        return train(mlp(), 100)
    schedule = torch.profiler.schedule(wait=5, warmup=2, active=3, repeat=1)
    with torch.profiler.profile(schedule=schedule) as profiler:
        return train(mlp(), 100, after=lambda step: profiler.step())

def three_steps(healthy: bool) -> Run:
    return train(mlp(), 100 if healthy else 3)

FAULTS = {
    one.__name__: one
    for one in (
        *(gil, fp64, evaluation, checkpoint, leak, slow_worker, restarted, rare_items, threads, loader_thread, muon),
        *(sparse_adam, ema, clipping, retokenising, distillation, ppo, logging, own_profiler, three_steps),
    )
}

def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fault", choices=FAULTS, required=True)
    parser.add_argument("--healthy", action="store_true")
    asked = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    start, steps = FAULTS[asked.fault](asked.healthy)
    print(f"loop_s={time.perf_counter() - start:.3f} steps={steps}")

if __name__ == "__main__":
    main()
