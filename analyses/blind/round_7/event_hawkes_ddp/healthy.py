"""Transformer Hawkes process on customer event streams, two gloo ranks.

Each stream is a list of (inter-event time, event type). The model predicts the next type and the
log-normal parameters of the next waiting time.
"""
import argparse
import json
import math
import os
import socket
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

DEFAULTS = {
    "streams": 1536, "test_streams": 64, "types": 24, "min_len": 20, "max_len": 260,
    "dim": 64, "heads": 4, "layers": 2, "batch": 16, "epochs": 6, "lr": 5e-4, "seed": 3,
}


def simulate(n, conf, rng):
    """Streams with type-dependent waits, returned in order of their length (as the export does)."""
    lengths = np.exp(rng.uniform(np.log(conf["min_len"]), np.log(conf["max_len"]), n)).astype(int)
    succ = rng.permutation(conf["types"])
    scale = rng.uniform(-1.0, 1.0, conf["types"])
    out = []
    for length in np.sort(lengths):
        types = np.empty(length, dtype=np.int64)
        types[0] = rng.integers(conf["types"])
        jump = rng.random(length) < 0.3
        for i in range(1, length):
            types[i] = rng.integers(conf["types"]) if jump[i] else succ[types[i - 1]]
        waits = np.exp(scale[types] + 0.3 * rng.normal(size=length)).astype(np.float32)
        out.append((torch.from_numpy(waits), torch.from_numpy(types)))
    return out


def collate(streams):
    waits = nn.utils.rnn.pad_sequence([w for w, _ in streams], batch_first=True, padding_value=1.0)
    types = nn.utils.rnn.pad_sequence([t for _, t in streams], batch_first=True)
    lengths = torch.tensor([len(t) for _, t in streams])
    return waits, types, torch.arange(types.shape[1])[None] < lengths[:, None]


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.norm2(x))


class TransformerHawkes(nn.Module):
    def __init__(self, conf):
        super().__init__()
        dim = conf["dim"]
        self.type_emb = nn.Embedding(conf["types"], dim)
        self.register_buffer("freq", torch.exp(-math.log(1e3) * torch.arange(dim // 2) / (dim // 2)))
        self.blocks = nn.ModuleList(Block(dim, conf["heads"]) for _ in range(conf["layers"]))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, conf["types"] + 2)

    def forward(self, waits, types):
        phase = waits.cumsum(1)[..., None] * self.freq
        x = self.type_emb(types) + torch.cat([phase.sin(), phase.cos()], dim=-1)
        for block in self.blocks:
            x = block(x)
        out = self.head(self.norm(x))
        return out[..., :-2], out[..., -2], out[..., -1].clamp(-4, 4)


def event_loss(model, waits, types, mask):
    logits, mu, log_sigma = model(waits, types)
    keep = mask[:, 1:]
    nll_type = F.cross_entropy(logits[:, :-1][keep], types[:, 1:][keep])
    z = (waits[:, 1:].log() - mu[:, :-1]) * torch.exp(-log_sigma[:, :-1])
    nll_wait = (0.5 * z ** 2 + log_sigma[:, :-1])[keep].mean()
    return nll_type + nll_wait


def split(streams, rank, world):
    return streams[rank::world]


def batches(streams, size, seed):
    """Neighbours in length share a batch, the batches come in random order."""
    starts = np.arange(0, len(streams) - size + 1, size)
    np.random.default_rng(seed).shuffle(starts)
    for s in starts:
        yield collate(streams[s:s + size])


def worker(rank, world, port, conf):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(conf["seed"])
    rng = np.random.default_rng(conf["seed"])
    train = split(simulate(conf["streams"], conf, rng), rank, world)
    test = simulate(conf["test_streams"], conf, rng)[rank::world]

    model = DDP(TransformerHawkes(conf))
    opt = torch.optim.AdamW(model.parameters(), lr=conf["lr"])
    event_loss(model, *collate(train[-conf["batch"]:])).backward()
    opt.zero_grad(set_to_none=True)
    dist.barrier()

    steps, begin = 0, time.perf_counter()
    for epoch in range(conf["epochs"]):
        for waits, types, mask in batches(train, conf["batch"], conf["seed"] + epoch):
            loss = event_loss(model, waits, types, mask)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            steps += 1
        with torch.no_grad():
            score = event_loss(model.module, *collate(test))
        dist.all_reduce(score)
        if rank == 0:
            print(json.dumps({"epoch": epoch, "steps": steps, "test_nll": round(score.item() / world, 4)}))
    seconds = time.perf_counter() - begin
    if rank == 0:
        print("loop_s=%.3f steps=%d" % (seconds, steps), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    for key, value in DEFAULTS.items():
        ap.add_argument("--" + key.replace("_", "-"), type=type(value), default=value)
    conf = vars(ap.parse_args())
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(2, port, conf), nprocs=2)
