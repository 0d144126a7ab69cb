"""Two-rank (gloo) training of a denoising transformer on backbone torsion angles."""
import copy
import math
import os
import tempfile
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Setup:
    chains: int = 4096
    length: int = 24
    dim: int = 192
    heads: int = 6
    layers: int = 4
    batch: int = 8              # a rank
    steps: int = 130
    timesteps: int = 400
    lr: float = 4e-4
    decay: float = 0.995
    report: int = 26
    world: int = 2


def simulate_torsions(cfg, seed):
    """(phi, psi, omega) from a three-state chain: helix, strand, coil."""
    gen = torch.Generator().manual_seed(seed)
    centre = torch.tensor([[-1.10, -0.82, 3.14], [-2.10, 2.36, 3.14], [-1.40, 1.20, 3.14]])
    spread = torch.tensor([[0.12, 0.14, 0.05], [0.30, 0.30, 0.08], [0.70, 0.90, 0.10]])
    stay = torch.tensor([0.90, 0.85, 0.70])
    state = torch.randint(0, 3, (cfg.chains,), generator=gen)
    states = []
    for _ in range(cfg.length):
        move = torch.rand(cfg.chains, generator=gen) > stay[state]
        state = torch.where(move, torch.randint(0, 3, state.shape, generator=gen), state)
        states.append(state)
    states = torch.stack(states, 1)
    angle = centre[states] + spread[states] * torch.randn(*states.shape, 3, generator=gen)
    return wrap(angle)


def wrap(angle):
    return torch.remainder(angle + math.pi, 2 * math.pi) - math.pi


class TorsionNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.enter = nn.Linear(6, cfg.dim)
        self.place = nn.Parameter(0.02 * torch.randn(cfg.length, cfg.dim))
        self.time = nn.Sequential(nn.Linear(64, cfg.dim), nn.SiLU(), nn.Linear(cfg.dim, cfg.dim))
        layer = nn.TransformerEncoderLayer(
            cfg.dim, cfg.heads, 4 * cfg.dim, dropout=0.0, activation="gelu",
            batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.out = nn.Sequential(nn.LayerNorm(cfg.dim), nn.Linear(cfg.dim, 3))
        self.register_buffer("freq", torch.exp(torch.linspace(0, -8, 32)))

    def forward(self, angle, t):
        phase = t[:, None].float() * self.freq
        when = self.time(torch.cat([phase.sin(), phase.cos()], 1))
        x = self.enter(torch.cat([angle.sin(), angle.cos()], -1)) + self.place + when[:, None]
        return self.out(self.body(x))


class Average:
    """Averaged weights.  DDP keeps the ranks' weights equal, so every rank averages for itself."""

    def __init__(self, model, decay):
        self.model = copy.deepcopy(model).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        own = list(self.model.parameters())
        torch._foreach_lerp_(own, list(model.parameters()), 1 - self.decay)


def denoising_loss(model, angle, sigma, gen):
    t = torch.randint(0, len(sigma), (len(angle),), generator=gen)
    noise = torch.randn(angle.shape, generator=gen)
    s = sigma[t][:, None, None]
    pred = model(wrap(angle + s * noise), t)
    return nn.functional.smooth_l1_loss(pred, noise, beta=0.5)


def rank_main(rank, cfg, init_file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=cfg.world)
    torch.manual_seed(31)
    data = simulate_torsions(cfg, 31)
    test, train = data[:64], data[64:]
    mine = train[rank::cfg.world]
    sigma = torch.exp(torch.linspace(math.log(0.02), math.log(3.0), cfg.timesteps))
    raw = TorsionNet(cfg)
    average = Average(raw, cfg.decay)
    model = DDP(raw, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-4)
    gen = torch.Generator().manual_seed(100 + rank)

    dist.barrier()
    start = time.perf_counter()
    loss_sum = 0.0
    for step in range(1, cfg.steps + 1):
        pick = torch.randint(0, len(mine), (cfg.batch,), generator=gen)
        loss = denoising_loss(model, mine[pick], sigma, gen)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(raw)
        loss_sum += loss.item()
        if step % cfg.report == 0:
            part = test[rank::cfg.world]
            with torch.no_grad():
                held = denoising_loss(average.model, part, sigma, torch.Generator().manual_seed(rank))
            both = torch.tensor([loss_sum / cfg.report, held.item()]) / cfg.world
            dist.all_reduce(both)
            loss_sum = 0.0
            if rank == 0:
                print(f"step {step:4d}  loss {both[0]:.4f}  averaged weights {both[1]:.4f}", flush=True)
    dist.barrier()
    seconds = time.perf_counter() - start
    dist.destroy_process_group()
    if rank == 0:
        print(f"loop_s={seconds:.3f} steps={cfg.steps}", flush=True)


if __name__ == "__main__":
    config = Setup()
    with tempfile.TemporaryDirectory(prefix="torsions_") as folder:
        mp.spawn(rank_main, args=(config, os.path.join(folder, "rendezvous")), nprocs=config.world)
