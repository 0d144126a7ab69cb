"""Direction of neutrino events from photon pulses, packed point sets, two gloo ranks (DDP)."""
import logging
import os
import socket
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

CONF = {
    "runs": 24,
    "events_per_run": 120,
    "batch": 24,
    "dim": 96,
    "steps": 200,
    "eval_every": 100,
    "lr": 1e-3,
    "seed": 31,
}


def simulate_run(number, n_events):
    """Runs come in pairs: the full array, then the sparse outer array with few pulses per event."""
    rng = np.random.default_rng(1000 + number)
    mean = 260 if number % 2 == 0 else 70
    events = []
    for _ in range(n_events):
        n = int(np.clip(rng.gamma(8.0, mean / 8.0), 12, 900))
        d = rng.normal(size=3)
        d /= np.linalg.norm(d)
        along = rng.uniform(-1, 1, n)
        spread = rng.normal(0, 0.15, (n, 3))
        pos = along[:, None] * d + spread
        t = along + np.abs(rng.normal(0, 0.1, n))
        q = rng.gamma(2, 0.5, n)
        pulses = np.concatenate([pos, t[:, None], np.log1p(q)[:, None]], 1).astype(np.float32)
        events.append((torch.from_numpy(pulses), torch.from_numpy(d.astype(np.float32))))
    return events


def assign_runs(conf, rank, world):
    """The run numbers that a rank reads."""
    pairs = np.arange(conf["runs"]).reshape(-1, 2)
    return pairs[rank::world].ravel()


def pack(events):
    lengths = torch.tensor([len(p) for p, _ in events])
    return (torch.cat([p for p, _ in events]), torch.repeat_interleave(torch.arange(len(events)), lengths),
            lengths, torch.stack([d for _, d in events]))


class EventStream:
    def __init__(self, events, batch, seed):
        self.events, self.batch = events, batch
        self.rng = np.random.default_rng(seed)

    def __iter__(self):
        while True:
            order = self.rng.permutation(len(self.events))
            for i in range(0, len(order) - self.batch + 1, self.batch):
                yield pack([self.events[k] for k in order[i:i + self.batch]])


class SetLayer(nn.Module):
    """Pulse update with the mean of its event."""

    def __init__(self, dim):
        super().__init__()
        self.own = nn.Linear(dim, dim)
        self.pooled = nn.Linear(dim, dim, bias=False)
        self.out = nn.Linear(dim, dim)

    def forward(self, h, event, lengths):
        total = h.new_zeros(len(lengths), h.shape[1]).index_add_(0, event, h)
        mean = self.pooled(total / lengths[:, None])
        return h + self.out(F.silu(self.own(h) + mean[event]))


class DirectionNet(nn.Module):
    def __init__(self, dim, layers=4):
        super().__init__()
        self.inp = nn.Sequential(nn.Linear(5, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.layers = nn.ModuleList(SetLayer(dim) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 3))

    def forward(self, pulses, event, lengths):
        h = self.inp(pulses)
        for layer in self.layers:
            h = layer(h, event, lengths)
        total = h.new_zeros(len(lengths), h.shape[1]).index_add_(0, event, h)
        return F.normalize(self.head(total / lengths[:, None]), dim=1)


@torch.no_grad()
def median_angle(net, batches):
    net.eval()
    angles = [torch.rad2deg(torch.acos((net(p, e, n) * d).sum(1).clamp(-1, 1))) for p, e, n, d in batches]
    net.train()
    value = torch.cat(angles).median()
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()


def run(rank, world, port, conf):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING, format="[%(levelname)s] %(message)s")
    torch.manual_seed(conf["seed"])
    events = [e for r in assign_runs(conf, rank, world) for e in simulate_run(r, conf["events_per_run"])]
    held_out = [pack(simulate_run(500 + k, 48)[rank::world]) for k in range(2)]
    logging.info("rank 0 has %d events", len(events))

    net = DirectionNet(conf["dim"])
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=conf["lr"])
    stream = iter(EventStream(events, conf["batch"], conf["seed"] + rank))

    def one_step():
        pulses, event, lengths, truth = next(stream)
        loss = (1 - (model(pulses, event, lengths) * truth).sum(1)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    for _ in range(2):
        one_step()
    dist.barrier()
    start = time.perf_counter()
    running = torch.zeros(())
    for step in range(1, conf["steps"] + 1):
        running += one_step()
        if step % conf["eval_every"] == 0:
            angle = median_angle(net, held_out)
            logging.info("step %d loss %.4f median angle %.1f", step, running.item() / conf["eval_every"], angle)
            running.zero_()
    dist.barrier()
    if rank == 0:
        print("loop_s=%.3f steps=%d" % (time.perf_counter() - start, conf["steps"]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free_port = s.getsockname()[1]
    mp.spawn(run, args=(2, free_port, CONF), nprocs=2)
