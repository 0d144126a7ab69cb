# traffic sensors -> next hour, LSTM over all sensors
import json, os, shutil, tempfile, time
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(31)
rng = np.random.default_rng(31)
workdir = tempfile.mkdtemp()

SENSORS, PAST, AHEAD = 32, 48, 12
t = np.arange(4000)
phase = rng.uniform(0, 6, SENSORS)
series = (np.sin(2 * np.pi * t[:, None] / 288 + phase) + 0.4 * np.sin(2 * np.pi * t[:, None] / 96 + 2 * phase)
          + rng.normal(0, 0.2, (len(t), SENSORS))).astype(np.float32)
np.save(os.path.join(workdir, "traffic.npy"), series)
series = torch.from_numpy(np.load(os.path.join(workdir, "traffic.npy")))
split = 3400


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(SENSORS, 96, num_layers=2, batch_first=True)
        self.out = nn.Linear(96, AHEAD * SENSORS)

    def forward(self, x):
        h, _ = self.lstm(x)
        return self.out(h[:, -1]).view(-1, AHEAD, SENSORS)


def windows(starts):
    idx = starts[:, None] + torch.arange(PAST + AHEAD)
    block = series[idx]
    return block[:, :PAST], block[:, PAST:]


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
loss_fn = nn.L1Loss()
log_path = os.path.join(workdir, "train.jsonl")


def train_step(starts):
    x, y = windows(starts)
    opt.zero_grad()
    loss = loss_fn(net(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    return loss


for _ in range(3):
    train_step(torch.arange(32))

steps = 0
t0 = time.perf_counter()
for epoch in range(2):
    order = torch.randperm(split - PAST - AHEAD)
    for starts in order.split(32):
        loss = train_step(starts)
        steps += 1
        if steps % 50 == 0:
            with open(log_path, "a") as f:
                f.write(json.dumps({"step": steps, "loss": loss.item(), "lr": opt.param_groups[0]["lr"]}) + "\n")
    with torch.no_grad():
        x, y = windows(torch.arange(split, len(series) - PAST - AHEAD, 3))
        print("epoch", epoch, "val", round(loss_fn(net(x), y).item(), 4))
took = time.perf_counter() - t0
shutil.rmtree(workdir)
print(f"loop_s={took:.3f} steps={steps}")
