# OpenAI-style evolution strategies on a vectorised "carry the load" task, two processes over gloo.
# Antithetic pairs, rank-shaped returns, Adam on the mean parameters.
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SEED = 17
WORLD = 2
GENERATIONS = 250
PAIRS_PER_RANK = 24
SIGMA = 0.05
LR = 0.02
HORIZON = 16
ENVS = 4
OBS, ACT, HIDDEN = 10, 3, 256
LAYERS = [(OBS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, ACT)]


class CarryTask:
    """Point mass with a swinging load; observations are positions, velocities and the goal."""

    def __init__(self, members, envs, seed):
        g = torch.Generator().manual_seed(seed)
        goal = torch.rand(1, envs, 3, generator=g) * 2 - 1
        self.goal = goal.expand(members, envs, 3)
        self.pos = torch.zeros(members, envs, 3)
        self.vel = torch.zeros(members, envs, 3)
        self.swing = torch.zeros(members, envs, 1)

    def observe(self):
        return torch.cat([self.pos, self.vel, self.goal, self.swing], dim=-1)

    def act(self, force):
        self.vel = 0.95 * self.vel + 0.1 * force - 0.02 * self.swing
        self.pos = self.pos + 0.1 * self.vel
        self.swing = 0.9 * self.swing + 0.1 * force.mean(-1, keepdim=True)
        distance = (self.pos - self.goal).norm(dim=-1)
        return -(distance + 0.05 * self.swing.abs().squeeze(-1) + 0.01 * force.square().sum(-1))


def unpack(flat):
    """[members, n_params] -> list of (weight, bias), batched over members."""
    out, at = [], 0
    for n_in, n_out in LAYERS:
        w = flat[:, at:at + n_in * n_out].view(-1, n_in, n_out)
        at += n_in * n_out
        b = flat[:, None, at:at + n_out]
        at += n_out
        out.append((w, b))
    return out


def initial_parameters(generator):
    parts = []
    for n_in, n_out in LAYERS:
        parts.append(torch.randn(n_in * n_out, generator=generator) / n_in ** 0.5)
        parts.append(torch.zeros(n_out))
    return torch.cat(parts)


@torch.inference_mode()
def rollout(population, task_seed):
    members = population.shape[0]
    task = CarryTask(members, ENVS, task_seed)
    net = unpack(population)
    total = torch.zeros(members, ENVS)
    for _ in range(HORIZON):
        h = task.observe()
        for i, (w, b) in enumerate(net):
            h = torch.baddbmm(b, h, w)
            if i + 1 < len(net):
                h = h.tanh_()
        total += task.act(h.tanh_())
    return total.mean(dim=1) / HORIZON


def centred_ranks(returns):
    ranks = torch.empty_like(returns)
    ranks[returns.argsort()] = torch.arange(len(returns), dtype=returns.dtype)
    return ranks / (len(returns) - 1) - 0.5


def gather(t):
    parts = [torch.empty_like(t) for _ in range(WORLD)]
    dist.all_gather(parts, t)
    return torch.cat(parts)


class Search:
    def __init__(self, rank):
        self.rank = rank
        self.mean = initial_parameters(torch.Generator().manual_seed(SEED)).requires_grad_(True)
        self.opt = torch.optim.Adam([self.mean], lr=LR)
        self.generator = torch.Generator().manual_seed(SEED + 1 + rank)

    def generation(self, number):
        noise = torch.randn(PAIRS_PER_RANK, self.mean.numel(), generator=self.generator)
        with torch.no_grad():
            population = torch.cat([self.mean + SIGMA * noise, self.mean - SIGMA * noise])
        returns = rollout(population, task_seed=1000 + number)
        plus, minus = returns.chunk(2)

        plus, minus = gather(plus), gather(minus)
        shaped_plus, shaped_minus = centred_ranks(torch.cat([plus, minus])).chunk(2)
        mine = slice(self.rank * PAIRS_PER_RANK, (self.rank + 1) * PAIRS_PER_RANK)
        gradient = (shaped_plus - shaped_minus)[mine] @ noise
        dist.all_reduce(gradient)
        gradient /= 2 * WORLD * PAIRS_PER_RANK * SIGMA

        self.mean.grad = -gradient
        self.opt.step()
        return torch.cat([plus, minus])


def run(rank, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    search = Search(rank)
    search.generation(-1)
    dist.barrier()
    start = time.perf_counter()
    for number in range(GENERATIONS):
        returns = search.generation(number)
        if rank == 0 and (number + 1) % 50 == 0:
            print("generation %3d  mean %.4f  best %.4f  |theta| %.2f" % (
                number + 1, returns.mean(), returns.max(), search.mean.detach().norm()))
    elapsed = time.perf_counter() - start
    if rank == 0:
        print("loop_s=%.3f steps=%d" % (elapsed, GENERATIONS), flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(run, args=(free_port(),), nprocs=WORLD)
