import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


def build():
    return nn.Sequential(nn.Linear(64, 192), nn.ReLU(), nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, 10))


class Mailbox:
    """Exchanges model states between the server and its clients through a folder."""

    def __init__(self, folder):
        self.folder = folder

    def put(self, name, state):
        torch.save(state, os.path.join(self.folder, name))

    def get(self, name):
        return torch.load(os.path.join(self.folder, name))


class Client:
    def __init__(self, ident, x, y, mailbox, batch=128):
        self.ident, self.x, self.y, self.mailbox, self.batch = ident, x, y, mailbox, batch
        self.model = build()
        self.gen = torch.Generator().manual_seed(ident)

    def train_round(self, local_steps):
        self.model.load_state_dict(self.mailbox.get("global"))
        opt = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        for _ in range(local_steps):
            i = torch.randint(len(self.x), (self.batch,), generator=self.gen)
            loss = F.cross_entropy(self.model(self.x[i]), self.y[i])
            opt.zero_grad()
            loss.backward()
            opt.step()
        self.mailbox.put(f"client_{self.ident}", self.model.state_dict())
        return loss.item()


class Server:
    def __init__(self, mailbox, x, y):
        self.model = build()
        self.mailbox, self.x, self.y = mailbox, x, y

    def broadcast(self):
        self.mailbox.put("global", self.model.state_dict())

    def aggregate(self, clients):
        total = sum(len(c.x) for c in clients)
        merged = {k: torch.zeros_like(v) for k, v in self.model.state_dict().items()}
        for c in clients:
            for k, v in self.mailbox.get(f"client_{c.ident}").items():
                merged[k] += v * (len(c.x) / total)
        self.model.load_state_dict(merged)

    @torch.no_grad()
    def accuracy(self):
        return (self.model(self.x).argmax(1) == self.y).float().mean().item()


def make_data(n_clients, rng):
    centers = rng.normal(0, 1, (10, 64))
    parts = []
    for _ in range(n_clients):
        p = rng.dirichlet(np.full(10, 0.5))
        y = rng.choice(10, size=int(rng.integers(500, 1200)), p=p)
        parts.append((centers[y] + rng.normal(0, 2.0, (len(y), 64)), y))
    y = rng.integers(0, 10, 1000)
    parts.append((centers[y] + rng.normal(0, 2.0, (1000, 64)), y))
    return [(torch.tensor(x, dtype=torch.float32), torch.tensor(y)) for x, y in parts]


def main(rounds=10, n_clients=5, local_steps=20):
    torch.manual_seed(0)
    *parts, test = make_data(n_clients, np.random.default_rng(8))
    with tempfile.TemporaryDirectory() as folder:
        box = Mailbox(folder)
        server = Server(box, *test)
        clients = [Client(i, x, y, box) for i, (x, y) in enumerate(parts)]
        F.cross_entropy(clients[0].model(parts[0][0][:8]), parts[0][1][:8]).backward()
        steps = 0
        start = time.perf_counter()
        for r in range(rounds):
            server.broadcast()
            losses = []
            for c in clients:
                losses.append(c.train_round(local_steps))
                steps += local_steps
            server.aggregate(clients)
            print(f"round {r} client loss {np.mean(losses):.3f} test acc {server.accuracy():.3f}")
        seconds = time.perf_counter() - start
    print(f"loop_s={seconds:.3f} steps={steps}")


if __name__ == "__main__":
    main()
