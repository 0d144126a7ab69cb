"""DeepSurv-like network on a synthetic cohort: Cox partial likelihood, concordance for early stopping."""
import copy
import math
import random
import time

import numpy as np
import pandas as pd
import torch
import torch.nn as nn

SEED = 21
PATIENTS = 24000
VALIDATION = 1000
NUMERIC = 36
BATCH = 1024
WIDTH = 256
STEPS = 600
CHECK_EVERY = 30
PATIENCE = 40
LR = 1e-3

random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)


def cohort(n):
    rng = np.random.default_rng(SEED)
    df = pd.DataFrame(rng.normal(size=(n, NUMERIC)), columns=[f"lab_{i}" for i in range(NUMERIC)])
    df["stage"] = rng.choice(["I", "II", "III", "IV"], n, p=[0.35, 0.3, 0.2, 0.15])
    df["smoker"] = rng.random(n) < 0.3
    risk = 0.5 * df["lab_0"] + 0.4 * df["lab_1"] * df["lab_2"] + 0.6 * np.sin(2 * df["lab_3"])
    risk = risk + df["stage"].map({"I": 0, "II": 0.4, "III": 0.9, "IV": 1.5}) + 0.5 * df["smoker"]
    died = rng.weibull(1.4, n) * 40 * np.exp(-risk / 1.4)
    left = rng.uniform(2, 60, n)
    df["months"] = np.minimum(died, left)
    df["event"] = died <= left
    return df


def encode(df):
    x = pd.concat([df.filter(like="lab_"), pd.get_dummies(df["stage"]), df[["smoker"]]], axis=1).astype("float32")
    x = (x - x.mean()) / x.std()
    return (np.ascontiguousarray(x.to_numpy()), df["months"].to_numpy(np.float32), df["event"].to_numpy(bool))


class RiskNet(nn.Module):
    def __init__(self, n_in, width):
        super().__init__()
        blocks = []
        for i in range(3):
            blocks += [nn.Linear(n_in if i == 0 else width, width), nn.LayerNorm(width), nn.SELU(), nn.Dropout(0.2)]
        self.body = nn.Sequential(*blocks)
        self.out = nn.Linear(width, 1, bias=False)

    def forward(self, x):
        return self.out(self.body(x)).squeeze(1)


def cox_loss(risk, months, event):
    order = torch.argsort(months, descending=True)
    r, e = risk[order], event[order]
    log_sum = torch.logcumsumexp(r, 0)
    return -(r - log_sum)[e].sum() / e.sum().clamp_min(1)


def concordance(months, event, risk):
    """Harrell's C: share of comparable pairs in which the higher risk dies first."""
    good = pairs = 0.0
    n = len(months)
    for i in range(n):
        if not event[i]:
            continue
        for j in range(n):
            if months[j] > months[i]:
                pairs += 1
                if risk[i] > risk[j]:
                    good += 1
                elif risk[i] == risk[j]:
                    good += 0.5
    return good / pairs


class EarlyStop:
    def __init__(self, patience):
        self.patience, self.best, self.bad, self.state = patience, -math.inf, 0, None

    def __call__(self, value, model):
        if value > self.best:
            self.best, self.bad, self.state = value, 0, copy.deepcopy(model.state_dict())
        else:
            self.bad += 1
        return self.bad >= self.patience


x, months, event = encode(cohort(PATIENTS))
val_x = torch.from_numpy(x[:VALIDATION])
val_months, val_event = months[:VALIDATION], event[:VALIDATION]
train_x = torch.from_numpy(x[VALIDATION:])
train_months = torch.from_numpy(months[VALIDATION:])
train_event = torch.from_numpy(event[VALIDATION:])
print(f"{len(train_x)} patients, {train_event.float().mean():.2f} with an event, {x.shape[1]} covariates")

model = RiskNet(x.shape[1], WIDTH)
opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=1e-2, fused=True)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
stop = EarlyStop(PATIENCE)


def validate():
    model.eval()
    with torch.no_grad():
        risk = model(val_x).numpy()
    model.train()
    return concordance(val_months, val_event, risk)


step, done = 0, False
perm, at = torch.randperm(len(train_x)), 0
start = time.perf_counter()
while step < STEPS and not done:
    if at + BATCH > len(perm):
        perm, at = torch.randperm(len(train_x)), 0
    idx = perm[at:at + BATCH]
    at += BATCH
    loss = cox_loss(model(train_x[idx]), train_months[idx], train_event[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    step += 1
    if step % CHECK_EVERY == 0:
        c = validate()
        done = stop(c, model)
        print(f"step {step}: loss {loss.item():.4f}, validation C {c:.4f}, best {stop.best:.4f}")
loop = time.perf_counter() - start
model.load_state_dict(stop.state)
print("loop_s=%.3f steps=%d" % (loop, step))
