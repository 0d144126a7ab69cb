"""A module that is its own task, driven through hooks, as Lightning has it; a hook works in Python."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Series(Dataset):
    def __init__(self, length):
        self.values = torch.randn(length, 16)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.values[index]


class Task(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.GRU(1, 32, batch_first=True)
        self.out = nn.Linear(32, 1)
        self.smoothed = 0.0

    def forward(self, x):
        return self.out(self.net(x.unsqueeze(-1))[0][:, -1])

    def training_step(self, batch, index):
        return (self(batch) - batch.mean(1, keepdim=True)).square().mean()

    def on_train_batch_end(self, loss, index):
        for _ in range(100_000):
            self.smoothed = 0.9 * self.smoothed + 0.1  # slow

    def configure_optimizers(self):
        return torch.optim.RMSprop(self.parameters(), lr=1e-3)


class Loop:
    def fit(self, task, loader):
        optimizer = task.configure_optimizers()
        for index, batch in enumerate(loader):

            def closure():
                optimizer.zero_grad()
                loss = task.training_step(batch, index)
                loss.backward()
                return loss

            loss = optimizer.step(closure)
            task.on_train_batch_end(loss, index)


torch.manual_seed(0)
Loop().fit(Task(), DataLoader(Series(44 * 16), batch_size=16, shuffle=True))
