import argparse
import math
import os
import random
import shutil
import tempfile
import time

import torch
import torch.nn as nn
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D


class LoRA(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base = base
        nin, nout = base.weight.shape
        self.a = nn.Parameter(torch.randn(nin, rank) / math.sqrt(nin))
        self.b = nn.Parameter(torch.zeros(rank, nout))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + (x @ self.a) @ self.b * self.scale


def add_adapters(model, rank=8, alpha=16):
    for p in model.parameters():
        p.requires_grad_(False)
    for block in model.transformer.h:
        for parent, name in ((block.attn, "c_attn"), (block.mlp, "c_fc")):
            layer = getattr(parent, name)
            assert isinstance(layer, Conv1D)
            setattr(parent, name, LoRA(layer, rank, alpha))
    return [p for p in model.parameters() if p.requires_grad]


def make_dialogues(n, vocab, seq, seed):
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        start, stride = rng.randrange(vocab), rng.randrange(1, 9)
        rows.append([(start + stride * t + (rng.random() < 0.1)) % vocab for t in range(seq)])
    return torch.tensor(rows)


class CheckpointWriter:
    def __init__(self, folder, keep=2):
        self.folder, self.keep = folder, keep
        self.files = []

    def save(self, step, model, opt, sched):
        path = os.path.join(self.folder, f"step_{step:05d}.pt")
        adapters = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
        state = {"step": step, "model": adapters, "opt": opt.state_dict(), "sched": sched.state_dict()}
        torch.save(state, path)
        self.files.append(path)
        while len(self.files) > self.keep:
            os.remove(self.files.pop(0))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--save-every", type=int, default=4)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--seq", type=int, default=16)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tmp = tempfile.mkdtemp(prefix="lora_")
    try:
        cfg = GPT2Config(vocab_size=8192, n_positions=64, n_embd=320, n_layer=4, n_head=5,
                         resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
        model = GPT2LMHeadModel(cfg)
        params = add_adapters(model)
        data = make_dialogues(800, cfg.vocab_size, args.seq, 3)
        opt = torch.optim.AdamW(params, lr=2e-3)
        sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20))
        writer = CheckpointWriter(tmp)
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(1))
        model(input_ids=data[:2], labels=data[:2]).loss.backward()
        opt.zero_grad()

        running = 0.0
        start = time.perf_counter()
        for step in range(1, args.steps + 1):
            i = (step - 1) * args.batch % len(order)
            ids = data[order[i : i + args.batch]]
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            nn.utils.clip_grad_norm_(params, 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
            running += loss.detach()
            if step % args.save_every == 0:
                writer.save(step, model, opt, sched)
                print(f"step {step} loss {running.item() / args.save_every:.3f}")
                running = 0.0
        seconds = time.perf_counter() - start
    finally:
        shutil.rmtree(tmp)
    print(f"loop_s={seconds:.3f} steps={args.steps}")


if __name__ == "__main__":
    main()
