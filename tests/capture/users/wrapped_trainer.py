"""A trainer class as frameworks have it: callbacks, prepared wrappers, micro-batches, a schedule, evaluation between."""

from contextlib import contextmanager, nullcontext

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class PreparedLoader:
    """Passes on batches of a loader; looks ahead by one to know which is the last."""

    def __init__(self, loader):
        self.loader, self.is_last = loader, False

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        batches = iter(self.loader)
        batch, self.is_last = next(batches), False
        for following in batches:
            yield batch
            batch = following
        self.is_last = True
        yield batch


class PreparedOptimizer:
    """Steps only where gradients are whole."""

    def __init__(self, optimizer, engine):
        self.optimizer, self.engine = optimizer, engine

    def step(self):
        if self.engine.is_whole:
            self.optimizer.step()

    def zero_grad(self):
        if self.engine.is_whole:
            self.optimizer.zero_grad(set_to_none=True)

    def __getattr__(self, name):
        return getattr(self.optimizer, name)


class Engine:
    def __init__(self, every):
        self.every, self.n, self.is_whole = every, 0, False

    def prepare(self, model, optimizer, *loaders):
        return model, PreparedOptimizer(optimizer, self), *map(PreparedLoader, loaders)

    @contextmanager
    def accumulate(self, loader):
        self.n += 1
        self.is_whole = self.n % self.every == 0 or loader.is_last
        with nullcontext():
            yield

    def backward(self, loss):
        (loss / self.every).backward()


class Logger:
    def __init__(self):
        self.losses = []

    def on_step_end(self, trainer, loss):
        self.losses.append(loss.detach())

    def on_epoch_end(self, trainer):
        trainer.evaluate()


class Trainer:
    def __init__(self, model, data, held_out, *, epochs, every):
        self.engine, self.epochs = Engine(every), epochs
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        loaders = DataLoader(data, batch_size=8, shuffle=True), DataLoader(held_out, batch_size=8)
        self.model, self.optimizer, self.loader, self.held_out = self.engine.prepare(model, optimizer, *loaders)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
        self.callbacks = [Logger()]

    def training_step(self, batch):
        self.model.train()
        x, y = batch
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.engine.backward(loss)
        return loss

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        return sum((self.model(x).argmax(1) == y).sum().item() for x, y in self.held_out)

    def train(self):
        for _ in range(self.epochs):
            for batch in self.loader:
                with self.engine.accumulate(self.loader):
                    loss = self.training_step(batch)
                    self.optimizer.step()
                    if self.engine.is_whole:
                        self.schedule.step()
                    self.optimizer.zero_grad()
                for callback in self.callbacks:
                    callback.on_step_end(self, loss)
            for callback in self.callbacks:
                callback.on_epoch_end(self)
        return torch.stack(self.callbacks[0].losses).mean()


torch.manual_seed(0)
torch.set_num_threads(1)
x, y = torch.randn(480, 16), torch.randint(0, 4, (480,))
network = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 4))
trainer = Trainer(network, TensorDataset(x, y), TensorDataset(x[:64], y[:64]), epochs=2, every=4)
print(trainer.train().item().hex(), trainer.evaluate())
