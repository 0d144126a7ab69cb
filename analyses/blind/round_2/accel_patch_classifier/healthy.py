import json
import os
import tempfile
import time

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class TileFolder(Dataset):
    """One .npy per tile, label in the file name."""

    def __init__(self, root):
        self.files = sorted(os.path.join(root, f) for f in os.listdir(root) if f.endswith(".npy"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        img = np.load(self.files[i])
        label = int(self.files[i].rsplit("_", 1)[1][:-4])
        x = torch.from_numpy(img).permute(2, 0, 1).float().div_(255)
        if torch.rand(()) < 0.5:
            x = x.flip(-1)
        return x, label


class Mixer(nn.Module):
    def __init__(self, dim=128, patch=6, size=48, depth=3, classes=5):
        super().__init__()
        n = (size // patch) ** 2
        self.stem = nn.Conv2d(3, dim, patch, patch)
        self.blocks = nn.ModuleList()
        for _ in range(depth):
            self.blocks.append(nn.ModuleList([
                nn.LayerNorm(dim), nn.Sequential(nn.Linear(n, 128), nn.GELU(), nn.Linear(128, n)),
                nn.LayerNorm(dim), nn.Sequential(nn.Linear(dim, 384), nn.GELU(), nn.Linear(384, dim)),
            ]))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        for n1, tok, n2, ch in self.blocks:
            x = x + tok(n1(x).transpose(1, 2)).transpose(1, 2)
            x = x + ch(n2(x))
        return self.head(x.mean(1))


def write_tiles(root, n):
    rng = np.random.default_rng(3)
    for i in range(n):
        c = int(rng.integers(5))
        img = rng.integers(0, 180, (48, 48, 3), dtype=np.uint8)
        img[c * 8 : c * 8 + 10, :, c % 3] += 70
        np.save(os.path.join(root, f"tile{i:05d}_{c}.npy"), img)


def main():
    set_seed(7)
    with tempfile.TemporaryDirectory() as tmp:
        write_tiles(tmp, 640)
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
        model = Mixer()
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
        loader = DataLoader(TileFolder(tmp), batch_size=32, shuffle=True, drop_last=True)
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=80)
        model, opt, loader, sched = accelerator.prepare(model, opt, loader, sched)
        loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
        log = open(os.path.join(tmp, "log.jsonl"), "w")

        warm = next(iter(loader))
        accelerator.backward(loss_fn(model(warm[0]), warm[1]))
        opt.zero_grad()

        steps = 0
        start = time.perf_counter()
        for epoch in range(3):
            model.train()
            for x, y in loader:
                with accelerator.accumulate(model):
                    logits = model(x)
                    loss = loss_fn(logits, y)
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    opt.step()
                    sched.step()
                    opt.zero_grad()
                if steps % 20 == 0:
                    pred, target = accelerator.gather_for_metrics((logits.argmax(-1), y))
                    acc = (pred == target).float().mean().item()
                    log.write(json.dumps({"step": steps, "loss": loss.item(), "acc": acc}) + "\n")
                steps += 1
            accelerator.print(f"epoch {epoch} loss {loss.item():.3f} acc {acc:.3f}")
        seconds = time.perf_counter() - start
        log.close()
    print(f"loop_s={seconds:.3f} steps={steps}")


if __name__ == "__main__":
    main()
