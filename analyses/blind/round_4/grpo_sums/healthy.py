"""GRPO on a tiny character model that learns to write sums.

prompt "37+48=", reward for every right digit and for ending in time. Groups of completions, advantages within
the group, clipped ratio over two passes. A side thread keeps an eye on the diversity of the rollouts.
"""
import argparse
import math
import queue
import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CHARS = "0123456789+=. "
STOI = {c: i for i, c in enumerate(CHARS)}
END = STOI["."]


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x, cache=None, pos=0):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if cache is not None:
            cache[0][:, :, pos:pos + t] = k
            cache[1][:, :, pos:pos + t] = v
            k, v = cache[0][:, :, :pos + t], cache[1][:, :, :pos + t]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class CharLM(nn.Module):
    def __init__(self, d=96, heads=4, depth=3, ctx=64):
        super().__init__()
        self.d, self.h = d, heads
        self.tok, self.pos = nn.Embedding(len(CHARS), d), nn.Embedding(ctx, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(depth))
        self.ln = nn.LayerNorm(d)
        self.head = nn.Linear(d, len(CHARS))

    def forward(self, ids, caches=None, start=0):
        x = self.tok(ids) + self.pos.weight[start:start + ids.shape[1]]
        for i, b in enumerate(self.blocks):
            x = b(x, None if caches is None else caches[i], start)
        return self.head(self.ln(x))

    @torch.no_grad()
    def sample(self, prompt, new):
        b, t = prompt.shape
        shape = (2, b, self.h, t + new, self.d // self.h)
        caches = [torch.empty(shape) for _ in self.blocks]
        ids = torch.empty(b, t + new, dtype=torch.long)
        ids[:, :t] = prompt
        logits = self(prompt, caches)[:, -1]
        for i in range(t, t + new):
            nxt = torch.multinomial(logits.softmax(-1), 1)
            ids[:, i:i + 1] = nxt
            if i + 1 < t + new:
                logits = self(nxt, caches, i)[:, -1]
        return ids


def token_logp(model, ids, t):
    logits = model(ids[:, :-1])[:, t - 1:]
    return logits.log_softmax(-1).gather(-1, ids[:, t:, None]).squeeze(-1)


def make_prompts(n, g):
    a, b = torch.randint(10, 99, (2, n), generator=g).tolist()
    text = [f"{x}+{y}=" for x, y in zip(a, b)]
    return torch.tensor([[STOI[c] for c in s] for s in text]), [str(x + y) for x, y in zip(a, b)]


def score(completion, answer):
    text = "".join(CHARS[i] for i in completion)
    said = text.split(".", 1)[0]
    hit = sum(p == q for p, q in zip(said, answer)) / len(answer)
    return hit + 0.5 * ("." in text) - 0.02 * abs(len(said) - len(answer))


def edit_distance(a, b):
    prev = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        cur = [i]
        for j, y in enumerate(b, 1):
            cur.append(min(prev[j] + 1, cur[-1] + 1, prev[j - 1] + (x != y)))
        prev = cur
    return prev[-1]


class DiversityWatch(threading.Thread):
    """Mean edit distance between the completions of a group, off the training thread."""

    def __init__(self, group):
        super().__init__(daemon=True)
        self.group = group
        self.inbox = queue.Queue()
        self.latest = float("nan")

    def run(self):
        while (item := self.inbox.get()) is not None:
            total = n = 0
            for s in range(0, len(item), self.group):
                members = item[s:s + self.group]
                for i in range(len(members)):
                    for j in range(i):
                        total += edit_distance(members[i], members[j])
                        n += 1
            self.latest = total / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iters", type=int, default=60)
    ap.add_argument("--prompts", type=int, default=3)
    ap.add_argument("--group", type=int, default=12)
    ap.add_argument("--new", type=int, default=32)
    ap.add_argument("--passes", type=int, default=2)
    ap.add_argument("--clip", type=float, default=0.2)
    ap.add_argument("--kl", type=float, default=0.02)
    ap.add_argument("--print-every", type=int, default=15)
    ap.add_argument("--seed", type=int, default=5)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    g = torch.Generator().manual_seed(args.seed)
    policy, ref = CharLM(), CharLM()
    ref.load_state_dict(policy.state_dict())
    ref.requires_grad_(False)
    opt = torch.optim.AdamW(policy.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
    watch = DiversityWatch(args.group)
    watch.start()

    steps, begin = 0, time.perf_counter()
    for it in range(1, args.iters + 1):
        prompt, answers = make_prompts(args.prompts, g)
        t = prompt.shape[1]
        ids = policy.sample(prompt.repeat_interleave(args.group, 0), args.new)
        done = ids[:, t:].tolist()
        if it % args.print_every == 0:
            watch.inbox.put(done)
        reward = torch.tensor([score(c, answers[i // args.group]) for i, c in enumerate(done)])
        grouped = reward.view(-1, args.group)
        adv = ((grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)).view(-1, 1)
        is_end = ids[:, t:] == END
        mask = ((is_end.cumsum(1) - is_end.long()) == 0).float()
        with torch.no_grad():
            ref_lp = token_logp(ref, ids, t)
        old_lp = None
        for _ in range(args.passes):
            lp = token_logp(policy, ids, t)
            if old_lp is None:
                old_lp = lp.detach()
            ratio = (lp - old_lp).exp()
            gain = torch.minimum(ratio * adv, ratio.clamp(1 - args.clip, 1 + args.clip) * adv)
            gap = ref_lp - lp
            kl = gap.exp() - gap - 1
            loss = (((args.kl * kl - gain) * mask).sum(1) / mask.sum(1)).mean()
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
            steps += 1
        if it % args.print_every == 0:
            length = mask.sum(1).mean().item()
            print(f"iter {it:3d} reward {reward.mean():.3f} kl {(kl * mask).sum() / mask.sum():.4f} "
                  f"len {length:.1f} diversity {watch.latest:.2f}", flush=True)
    elapsed = time.perf_counter() - begin
    watch.inbox.put(None)
    watch.join()
    assert math.isfinite(loss.item())
    print("loop_s=%.3f steps=%d" % (elapsed, steps))


if __name__ == "__main__":
    main()
