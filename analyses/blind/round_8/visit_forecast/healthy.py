"""Next-visit code prediction from a hospital registry kept in SQLite (synthetic)."""
import argparse
import os
import random
import sqlite3
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

N_CODES = 600
PAD = N_CODES
PER_VISIT = 8


def build_registry(path, n_patients, seed):
    rng = np.random.default_rng(seed)
    con = sqlite3.connect(path)
    con.execute("CREATE TABLE patients (id INTEGER PRIMARY KEY, birth_year INTEGER, sex INTEGER)")
    con.execute("CREATE TABLE visits (patient_id INTEGER, day INTEGER, codes BLOB)")
    profiles = rng.integers(0, N_CODES, size=(40, 30))
    rows, people = [], []
    for pid in range(n_patients):
        people.append((pid, int(rng.integers(1930, 2005)), int(rng.integers(0, 2))))
        prof = profiles[rng.integers(0, 40)]
        n = int(rng.integers(16, 33))
        days = np.sort(rng.integers(0, 3650, n))
        for v, d in enumerate(days):
            lo = v * 22 // n
            codes = rng.choice(prof[lo:lo + 8], PER_VISIT).astype(np.int16)
            noise = rng.random(PER_VISIT) < 0.1
            codes[noise] = rng.integers(0, N_CODES, noise.sum())
            rows.append((pid, int(d), codes.tobytes()))
    # the registry is written in the order in which visits were recorded
    rows.sort(key=lambda r: r[1])
    con.executemany("INSERT INTO patients VALUES (?, ?, ?)", people)
    con.executemany("INSERT INTO visits VALUES (?, ?, ?)", rows)
    con.execute("CREATE INDEX visits_by_patient ON visits (patient_id, day)")
    con.commit()
    con.close()


class RegistryDataset(Dataset):
    def __init__(self, path, ids, max_visits=32):
        self.con = sqlite3.connect(path)
        self.ids = ids
        self.max_visits = max_visits

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        pid = int(self.ids[i])
        birth, sex = self.con.execute("SELECT birth_year, sex FROM patients WHERE id = ?", (pid,)).fetchone()
        rows = self.con.execute(
            "SELECT day, codes FROM visits WHERE patient_id = ? ORDER BY day", (pid,)).fetchall()
        rows = rows[:self.max_visits]
        days = np.array([r[0] for r in rows], dtype=np.float32)
        codes = np.frombuffer(b"".join(r[1] for r in rows), dtype=np.int16).reshape(-1, PER_VISIT)
        return codes, days, (birth - 1960) / 20.0, float(sex)


class Collate:
    def __init__(self, max_visits=32):
        self.t = max_visits

    def __call__(self, items):
        b = len(items)
        codes = np.full((b, self.t, PER_VISIT), PAD, dtype=np.int64)
        days = np.zeros((b, self.t), dtype=np.float32)
        mask = np.zeros((b, self.t), dtype=bool)
        static = np.zeros((b, 2), dtype=np.float32)
        for i, (c, d, age, sex) in enumerate(items):
            n = len(c)
            codes[i, :n] = c
            days[i, :n] = d / 365.0
            mask[i, :n] = True
            static[i] = age, sex
        return tuple(torch.from_numpy(a) for a in (codes, days, mask, static))


class VisitModel(nn.Module):
    def __init__(self, dim=256, layers=3, heads=4):
        super().__init__()
        self.code = nn.Embedding(N_CODES + 1, dim, padding_idx=PAD)
        self.when = nn.Linear(1, dim)
        self.static = nn.Linear(2, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(dim, N_CODES)
        self.register_buffer("causal", torch.triu(torch.full((32, 32), float("-inf")), 1), persistent=False)

    def forward(self, codes, days, static):
        h = self.code(codes).sum(2) + self.when(days.unsqueeze(-1)) + self.static(static).unsqueeze(1)
        return self.out(self.body(h, mask=self.causal, is_causal=True))


def next_visit_loss(logits, codes, mask):
    target = torch.zeros(*codes.shape[:2], N_CODES + 1).scatter_(2, codes, 1.0)[:, 1:, :N_CODES]
    keep = mask[:, 1:]
    return F.binary_cross_entropy_with_logits(logits[:, :-1][keep], target[keep])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--patients", type=int, default=3600)
    ap.add_argument("--steps", type=int, default=70)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--lr", type=float, default=5e-4)
    ap.add_argument("--seed", type=int, default=5)
    args = ap.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)

    with tempfile.TemporaryDirectory() as tmp:
        db = os.path.join(tmp, "registry.db")
        build_registry(db, args.patients, args.seed)
        data = RegistryDataset(db, np.arange(args.patients))
        loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True, collate_fn=Collate())
        model = VisitModel()
        opt = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)

        # one dry pass so that kernels are ready
        codes, days, mask, static = next(iter(loader))
        next_visit_loss(model(codes, days, static), codes, mask).backward()
        opt.zero_grad(set_to_none=True)

        step = 0
        start = time.perf_counter()
        while step < args.steps:
            for codes, days, mask, static in loader:
                loss = next_visit_loss(model(codes, days, static), codes, mask)
                loss.backward()
                opt.step()
                opt.zero_grad(set_to_none=True)
                step += 1
                if step % 20 == 0:
                    print(f"step {step:4d}  bce {loss.item():.4f}")
                if step == args.steps:
                    break
        loop = time.perf_counter() - start
        data.con.close()
    print("loop_s=%.3f steps=%d" % (loop, step))


if __name__ == "__main__":
    main()
