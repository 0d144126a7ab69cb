"""Playlist continuation: denoising autoencoder with multinomial likelihood over the track catalogue."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def make_playlists(n, tracks, genres, rng):
    """Track ids per playlist, from a mixture of genres with long-tailed popularity."""
    member = rng.integers(0, genres, tracks)
    pop = 1 / (1 + rng.permutation(tracks)) ** 0.8
    pools = []
    for g in range(genres):
        ids = np.flatnonzero(member == g)
        pools.append((ids, pop[ids] / pop[ids].sum()))
    lists = []
    for _ in range(n):
        length = int(np.clip(rng.lognormal(3.2, 0.6), 8, 120))
        parts = []
        for g in rng.choice(genres, 2, replace=False):
            ids, p = pools[g]
            parts.append(rng.choice(ids, min(length // 2 + 1, len(ids)), p=p))
        lists.append(np.unique(np.concatenate(parts)))
    return lists


class Playlists(Dataset):
    def __init__(self, lists):
        self.lists = lists

    def __len__(self):
        return len(self.lists)

    def __getitem__(self, i):
        return self.lists[i]


class MultiHot:
    """Collate playlists into a dense multi-hot matrix."""

    def __init__(self, tracks):
        self.tracks = tracks

    def __call__(self, batch):
        x = np.zeros((len(batch), self.tracks), dtype=np.float32)
        for row, ids in enumerate(batch):
            x[row, ids] = 1.0
        return torch.from_numpy(x)


class MultDAE(nn.Module):
    def __init__(self, tracks, hidden, latent, dropout=0.5):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encode = nn.Sequential(nn.Linear(tracks, hidden), nn.Tanh(), nn.Linear(hidden, latent), nn.Tanh())
        self.decode = nn.Sequential(nn.Linear(latent, hidden), nn.Tanh(), nn.Linear(hidden, tracks))

    def forward(self, x):
        return self.decode(self.encode(self.drop(F.normalize(x, dim=1))))


@torch.no_grad()
def recall_at(model, shown, hidden, k=50):
    model.eval()
    scores = model(shown).masked_fill(shown > 0, -1e9)
    hits = hidden.gather(1, scores.topk(k, dim=1).indices).sum(1)
    model.train()
    return (hits / hidden.sum(1).clamp(min=1, max=k)).mean().item()


def split_lists(lists, collate, rng):
    shown, hidden = [], []
    for ids in lists:
        mixed = rng.permutation(ids)
        cut = max(1, int(0.8 * len(mixed)))
        shown.append(mixed[:cut])
        hidden.append(mixed[cut:])
    return collate(shown), collate(hidden)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--playlists", type=int, default=5000)
    ap.add_argument("--tracks", type=int, default=6000)
    ap.add_argument("--batch-size", type=int, default=250)
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--hidden", type=int, default=400)
    ap.add_argument("--latent", type=int, default=160)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=13)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    lists = make_playlists(args.playlists + 300, args.tracks, 30, rng)
    collate = MultiHot(args.tracks)
    shown, hidden = split_lists(lists[args.playlists:], collate, rng)
    loader = DataLoader(Playlists(lists[:args.playlists]), args.batch_size, shuffle=True,
                        collate_fn=collate, drop_last=True)
    model = MultDAE(args.tracks, args.hidden, args.latent)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-6)

    steps, history = 0, []
    start = time.perf_counter()
    for epoch in range(args.epochs):
        for x in loader:
            logits = model(x)
            loss = -(F.log_softmax(logits, 1) * x).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            history.append(loss.item())
        mean = np.mean(history[-len(loader):])
        print(f"epoch {epoch} loss {mean:.3f} recall@50 {recall_at(model, shown, hidden):.4f}")
    print(f"loop_s={time.perf_counter() - start:.3f} steps={steps}")


if __name__ == "__main__":
    main()
