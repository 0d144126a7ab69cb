"""Support-ticket routing: transformer classifier trained with Accelerate and gradient accumulation."""
import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset


class Tickets(Dataset):
    """Token ids drawn from class-dependent topic mixtures, already packed to one length."""

    def __init__(self, n, vocab, length, classes, seed):
        rng = np.random.default_rng(99)
        topics = rng.dirichlet(np.full(vocab, 0.02), size=classes)
        rng = np.random.default_rng(seed)
        self.labels = torch.from_numpy(rng.integers(0, classes, n))
        rows = [rng.choice(vocab, size=length, p=topics[c]) for c in self.labels.tolist()]
        noise = rng.integers(0, vocab, (n, length))
        keep = rng.random((n, length)) < 0.3
        self.ids = torch.from_numpy(np.where(keep, np.stack(rows), noise))

    def __len__(self):
        return len(self.labels)

    def __getitems__(self, idx):
        idx = torch.tensor(idx)
        return {"ids": self.ids[idx], "labels": self.labels[idx]}


class Classifier(nn.Module):
    def __init__(self, vocab, length, classes, dim=96, heads=4, layers=4):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.randn(1, length, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, heads, dim * 4, dropout=0.0, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, ids):
        h = self.encoder(self.tok(ids) + self.pos)
        return self.head(self.norm(h).mean(1))


class RunHistory:
    """Keeps the training curve of a run on disk, one record per optimizer step."""

    def __init__(self, folder):
        self.path = Path(folder) / "history.json"
        self.records = []

    def add(self, **record):
        self.records.append(record)
        self.path.write_text(json.dumps(self.records, indent=2))


def layer_norms(model):
    names, params = zip(*((n, p) for n, p in model.named_parameters() if p.grad is not None))
    grads = torch.stack(torch._foreach_norm([p.grad for p in params])).tolist()
    weights = torch.stack(torch._foreach_norm([p.detach() for p in params])).tolist()
    return {n: {"grad": g, "weight": w, "ratio": g / (w + 1e-8)} for n, g, w in zip(names, grads, weights)}


@torch.no_grad()
def accuracy(model, loader, accelerator):
    model.eval()
    hits = seen = 0
    for batch in loader:
        pred = model(batch["ids"]).argmax(-1)
        pred, labels = accelerator.gather_for_metrics((pred, batch["labels"]))
        hits += (pred == labels).sum().item()
        seen += len(labels)
    model.train()
    return hits / seen


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--vocab", type=int, default=2000)
    ap.add_argument("--length", type=int, default=24)
    ap.add_argument("--classes", type=int, default=12)
    ap.add_argument("--train-size", type=int, default=5632)
    ap.add_argument("--micro-batch", type=int, default=16)
    ap.add_argument("--accumulate", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=1)
    ap.add_argument("--lr", type=float, default=6e-4)
    ap.add_argument("--seed", type=int, default=17)
    args = ap.parse_args()

    torch.set_num_threads(1)
    set_seed(args.seed)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=args.accumulate)
    train = Tickets(args.train_size, args.vocab, args.length, args.classes, args.seed)
    test = Tickets(64, args.vocab, args.length, args.classes, args.seed + 1)
    train_loader = DataLoader(train, batch_size=args.micro_batch, shuffle=True, drop_last=True, collate_fn=lambda b: b)
    test_loader = DataLoader(test, batch_size=64, collate_fn=lambda b: b)

    model = Classifier(args.vocab, args.length, args.classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    total = args.epochs * len(train_loader) // args.accumulate
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=total + 1)
    model, optimizer, train_loader, test_loader = accelerator.prepare(model, optimizer, train_loader, test_loader)
    history = RunHistory(tempfile.mkdtemp(prefix="tickets_"))

    steps, window = 0, []
    start = time.perf_counter()
    for epoch in range(args.epochs):
        for batch in train_loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(batch["ids"]), batch["labels"])
                accelerator.backward(loss)
                window.append(loss.detach())
                if accelerator.sync_gradients:
                    norms = layer_norms(model)
                    total_norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                scheduler.step()
                steps += 1
                mean = torch.stack(window).mean().item()
                window.clear()
                history.add(step=steps, epoch=epoch, loss=mean, lr=scheduler.get_last_lr()[0],
                            grad_norm=float(total_norm), layers=norms)
                if steps % 44 == 0:
                    acc = accuracy(model, test_loader, accelerator)
                    accelerator.print(f"step {steps}/{total} loss {mean:.4f} test acc {acc:.3f}")
    seconds = time.perf_counter() - start
    accelerator.print(f"loop_s={seconds:.3f} steps={steps}")


if __name__ == "__main__":
    main()
