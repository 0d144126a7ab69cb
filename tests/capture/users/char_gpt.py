"""A character-level GPT in the manner of the well-known small repositories: AMP, clipping, cosine schedule, eval, checkpoint."""

import math
import os
import tempfile

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(1337)
text = "to be, or not to be: that is the question. " * 40
vocabulary = sorted(set(text))
encode = {c: i for i, c in enumerate(vocabulary)}
data = torch.tensor([encode[c] for c in text])
block, batch, width = 32, 8, 32


def get_batch():
    at = torch.randint(len(data) - block - 1, (batch,))
    return torch.stack([data[i : i + block] for i in at]), torch.stack([data[i + 1 : i + block + 1] for i in at])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
        x = x + self.out(a)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(len(vocabulary), width), nn.Embedding(block, width)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(width, len(vocabulary))

    def forward(self, x, y=None):
        h = self.token(x) + self.place(torch.arange(x.shape[1]))
        for part in self.blocks:
            h = part(h)
        logits = self.head(h)
        return logits, None if y is None else F.cross_entropy(logits.flatten(0, 1), y.flatten())


@torch.no_grad()
def estimate_loss():
    model.eval()
    value = sum(model(*get_batch())[1].item() for _ in range(3)) / 3
    model.train()
    return value


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
scaler = torch.amp.GradScaler("cpu", enabled=True)
for step in range(40):
    for group in optimizer.param_groups:
        group["lr"] = 1e-3 * 0.5 * (1 + math.cos(math.pi * step / 40))
    if step % 10 == 0:
        print(f"step {step}: val {estimate_loss():.6f}")
    for _ in range(2):
        with torch.amp.autocast("cpu", dtype=torch.bfloat16):
            _, loss = model(*get_batch())
        scaler.scale(loss / 2).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "ckpt.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    print(sorted(torch.load(path)), loss.item().hex())
