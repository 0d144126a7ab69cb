"""Learn the energy of a plane mass-spring network from noisy velocities and forces (HNN)."""
import math
import time

import torch
import torch.nn as nn

BODIES = 8
STATES = 60_000
TEST_STATES = 2048
BATCH = 768
WIDTH = 384
EPOCHS = 4
LR = 1e-3
NOISE = 0.02
REPORT = 40
SEED = 7
DIM = 2 * BODIES


def simulate():
    g = torch.Generator().manual_seed(SEED)
    mass = 0.5 + torch.rand(BODIES, generator=g)
    linked = (torch.rand(BODIES, BODIES, generator=g) < 0.5).float().triu(1)
    k = linked * (0.5 + torch.rand(BODIES, BODIES, generator=g))
    k = k + k.t()
    q = torch.randn(STATES, DIM, generator=g)
    p = torch.randn(STATES, DIM, generator=g) * 0.7
    velocity = (p.view(-1, BODIES, 2) / mass[:, None]).view(-1, DIM)
    force = []
    for part in q.split(4096):
        x = part.view(-1, BODIES, 2)
        delta = x[:, :, None] - x[:, None]
        dist = delta.norm(dim=-1).clamp_min(1e-3)
        f = -((k * (dist - 1.0) / dist)[..., None] * delta).sum(2)
        force.append(f.reshape(-1, DIM))
    velocity = velocity + NOISE * torch.randn(velocity.shape, generator=g)
    force = torch.cat(force)
    force = force + NOISE * torch.randn(force.shape, generator=g)
    return torch.cat([q, p], 1), torch.cat([velocity, force], 1)


class HNN(nn.Module):
    """state (q, p) -> (dq/dt, dp/dt) by the symplectic gradient of a learnt energy."""

    def __init__(self, dim, width):
        super().__init__()
        self.dim = dim
        layers, last = [], 2 * dim
        for _ in range(3):
            layers += [nn.Linear(last, width), nn.Tanh()]
            last = width
        self.energy = nn.Sequential(*layers, nn.Linear(last, 1))

    def forward(self, state):
        state = state.detach().requires_grad_(True)
        energy = self.energy(state).sum()
        (grad,) = torch.autograd.grad(energy, state, create_graph=True)
        return torch.cat([grad[:, self.dim:], -grad[:, :self.dim]], 1)


def lr_factor(total, warm=20):
    def factor(step):
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))
    return factor


def rmse(model, state, target):
    square = (model(state).detach() - target).square()
    return square[:, :DIM].mean().sqrt().item(), square[:, DIM:].mean().sqrt().item()


def main():
    torch.manual_seed(SEED)
    state, target = simulate()
    train_x, test_x = state[:-TEST_STATES], state[-TEST_STATES:]
    train_y, test_y = target[:-TEST_STATES], target[-TEST_STATES:]
    net = HNN(DIM, WIDTH)
    opt = torch.optim.AdamW(net.parameters(), lr=LR, weight_decay=1e-5)
    per_epoch = len(train_x) // BATCH
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_factor(per_epoch * EPOCHS))
    print(f"{BODIES} bodies, {len(train_x)} states, {per_epoch} steps an epoch")

    t0 = time.perf_counter()
    step, acc = 0, 0.0
    for epoch in range(EPOCHS):
        order = torch.randperm(len(train_x))[:per_epoch * BATCH]
        for idx in order.split(BATCH):
            error = (net(train_x[idx]) - train_y[idx]).square()
            loss = 2 * error.mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            sched.step()
            step += 1
            acc += loss.item()
            if step % REPORT == 0:
                print(f"{step:5d}: loss {acc / REPORT:.4f} (lr {sched.get_last_lr()[0]:.2e})")
                acc = 0.0
        v, f = rmse(net, test_x, test_y)
        print(f"epoch {epoch}: rmse velocity {v:.3f}, force {f:.3f}")
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={step}")


if __name__ == "__main__":
    main()
