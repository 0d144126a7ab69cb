"""Diffusion on protein backbone torsions: a transformer denoiser trained by two gloo ranks."""
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
class Config:
    chains: int = 4096
    length: int = 24
    dim: int = 192
    heads: int = 6
    layers: int = 4
    batch: int = 8              # a rank
    steps: int = 130
    timesteps: int = 400
    lr: float = 4e-4
    ema: float = 0.995
    report: int = 26
    world: int = 2


def fold_chains(cfg, seed):
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


class Denoiser(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.lift = nn.Linear(6, cfg.dim)
        self.place = nn.Parameter(0.02 * torch.randn(cfg.length, cfg.dim))
        self.clock = nn.Sequential(nn.Linear(64, cfg.dim), nn.SiLU(), nn.Linear(cfg.dim, cfg.dim))
        layer = nn.TransformerEncoderLayer(
            cfg.dim, cfg.heads, 4 * cfg.dim, dropout=0.0, activation="gelu",
            batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.out = nn.Sequential(nn.LayerNorm(cfg.dim), nn.Linear(cfg.dim, 3))
        self.register_buffer("freq", torch.exp(torch.linspace(0, -8, 32)))

    def forward(self, angle, t):
        phase = t[:, None].float() * self.freq
        clock = self.clock(torch.cat([phase.sin(), phase.cos()], 1))
        x = self.lift(torch.cat([angle.sin(), angle.cos()], -1)) + self.place + clock[:, None]
        return self.out(self.body(x))


class EMA:
    """Averaged weights, held by every rank, from which samples are drawn."""

    def __init__(self, model, decay):
        self.model = copy.deepcopy(model).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        mine = list(self.model.parameters())
        torch._foreach_lerp_(mine, list(model.parameters()), 1 - self.decay)
        for value in self.model.state_dict().values():
            dist.broadcast(value, src=0)


def noise_loss(model, angle, sigma, gen):
    t = torch.randint(0, len(sigma), (len(angle),), generator=gen)
    noise = torch.randn(angle.shape, generator=gen)
    s = sigma[t][:, None, None]
    pred = model(wrap(angle + s * noise), t)
    return nn.functional.smooth_l1_loss(pred, noise, beta=0.5)


def worker(rank, cfg, init_file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=cfg.world)
    torch.manual_seed(31)
    data = fold_chains(cfg, 31)
    test, train = data[:64], data[64:]
    mine = train[rank::cfg.world]
    sigma = torch.exp(torch.linspace(math.log(0.02), math.log(3.0), cfg.timesteps))
    net = Denoiser(cfg)
    ema = EMA(net, cfg.ema)
    model = DDP(net, gradient_as_bucket_view=True)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-4)
    gen = torch.Generator().manual_seed(100 + rank)

    dist.barrier()
    start = time.perf_counter()
    running = 0.0
    for step in range(1, cfg.steps + 1):
        pick = torch.randint(0, len(mine), (cfg.batch,), generator=gen)
        loss = noise_loss(model, mine[pick], sigma, gen)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(net)
        running += loss.item()
        if step % cfg.report == 0:
            part = test[rank::cfg.world]
            with torch.no_grad():
                held = noise_loss(ema.model, part, sigma, torch.Generator().manual_seed(rank))
            both = torch.tensor([running / cfg.report, held.item()]) / cfg.world
            dist.all_reduce(both)
            running = 0.0
            if rank == 0:
                print(f"step {step:4d}  loss {both[0]:.4f}  averaged weights {both[1]:.4f}", flush=True)
    dist.barrier()
    seconds = time.perf_counter() - start
    dist.destroy_process_group()
    if rank == 0:
        print(f"loop_s={seconds:.3f} steps={cfg.steps}", flush=True)


if __name__ == "__main__":
    config = Config()
    with tempfile.TemporaryDirectory(prefix="torsions_") as folder:
        mp.spawn(worker, args=(config, os.path.join(folder, "rendezvous")), nprocs=config.world)
