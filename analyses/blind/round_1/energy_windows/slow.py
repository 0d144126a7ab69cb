"""Day-ahead load forecast from hourly windows with a GRU."""
import os
import tempfile
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

HISTORY, HORIZON = 72, 24


def write_csv(path, hours=6000):
    rng = np.random.default_rng(17)
    t = pd.date_range("2021-01-01", periods=hours, freq="h")
    h = np.arange(hours)
    load = 50 + 12 * np.sin(2 * np.pi * h / 24) + 5 * np.sin(2 * np.pi * h / 168) + rng.normal(0, 1.5, hours)
    temp = 10 + 8 * np.sin(2 * np.pi * h / 8760) + rng.normal(0, 1, hours)
    wind = np.abs(rng.normal(6, 2, hours))
    pd.DataFrame({"time": t, "load": load, "temp": temp, "wind": wind}).to_csv(path, index=False)


def read_csv(path):
    df = pd.read_csv(path, parse_dates=["time"]).set_index("time")
    df = (df - df.mean()) / df.std()
    df["hour"] = df.index.hour / 23.0
    df["dow"] = df.index.dayofweek / 6.0
    return df


class Windows(Dataset):
    features = ["load", "temp", "wind", "hour", "dow"]

    def __init__(self, df):
        self.df = df

    def __len__(self):
        return len(self.df) - HISTORY - HORIZON

    def __getitem__(self, i):
        past = self.df.iloc[i:i + HISTORY][self.features]
        future = self.df.iloc[i + HISTORY:i + HISTORY + HORIZON]["load"]
        return (torch.tensor(past.to_numpy(), dtype=torch.float32), torch.tensor(future.to_numpy(), dtype=torch.float32))


class Forecaster(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.rnn = nn.GRU(len(Windows.features), hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, HORIZON))

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


def validate(model, loader):
    model.eval()
    with torch.no_grad():
        e = [(model(x) - y).abs().mean() for x, y in loader]
    model.train()
    return torch.stack(e).mean().item()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(17)
    with tempfile.TemporaryDirectory() as tmp:
        csv_path = os.path.join(tmp, "load.csv")
        write_csv(csv_path)
        frame = read_csv(csv_path)
    data = Windows(frame)
    cut = len(data) - 600
    train = DataLoader(Subset(data, range(0, cut, 2)), batch_size=32, shuffle=True, drop_last=True)
    val = DataLoader(Subset(data, range(cut, len(data), 4)), batch_size=64)
    model = Forecaster()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    huber = nn.SmoothL1Loss()
    x, y = next(iter(train))
    for _ in range(3):
        huber(model(x), y).backward()
    steps = 0
    begin = time.perf_counter()
    for epoch in range(3):
        for x, y in train:
            opt.zero_grad()
            loss = huber(model(x), y)
            loss.backward()
            opt.step()
            steps += 1
        print(f"epoch {epoch} last {loss.item():.4f} val mae {validate(model, val):.4f}")
    print(f"loop_s={time.perf_counter() - begin:.3f} steps={steps}")
