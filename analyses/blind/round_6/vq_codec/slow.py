"""Small neural audio codec: strided conv encoder, residual vector quantiser with EMA codebooks, conv decoder."""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=48)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--length", type=int, default=4096)
    p.add_argument("--width", type=int, default=32)
    p.add_argument("--dim", type=int, default=32)
    p.add_argument("--codes", type=int, default=256)
    p.add_argument("--books", type=int, default=3)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--log-every", type=int, default=25)
    return p.parse_args()


class Synth:
    """Plucked tones with vibrato and a bit of noise."""

    def __init__(self, n, length, sr=16000, seed=0):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(length) / sr
        f0 = 80 * 2 ** (torch.rand(n, 1, generator=g) * 3)
        vib = 1 + 0.01 * torch.sin(2 * math.pi * 5 * t + 6 * torch.rand(n, 1, generator=g))
        decay = torch.exp(-t * (2 + 10 * torch.rand(n, 1, generator=g)))
        x = torch.zeros(n, length)
        for h in range(1, 6):
            x += torch.sin(2 * math.pi * h * f0 * t * vib) / h ** 1.5
        self.x = (0.3 * x * decay + 0.005 * torch.randn(n, length, generator=g)).unsqueeze(1)

    def batch(self, size):
        return self.x[torch.randint(0, len(self.x), (size,))]


class Residual(nn.Module):
    def __init__(self, ch, dilation):
        super().__init__()
        self.a = nn.Conv1d(ch, ch, 3, padding=dilation, dilation=dilation)
        self.b = nn.Conv1d(ch, ch, 1)

    def forward(self, x):
        return x + self.b(F.elu(self.a(F.elu(x))))


class Encoder(nn.Module):
    def __init__(self, w, dim):
        super().__init__()
        layers, ch = [nn.Conv1d(1, w, 7, padding=3)], w
        for s in (4, 4, 2):
            layers += [Residual(ch, 1), Residual(ch, 3), nn.ELU(), nn.Conv1d(ch, ch * 3 // 2, 2 * s, s, padding=s // 2)]
            ch = ch * 3 // 2
        layers += [nn.ELU(), nn.Conv1d(ch, dim, 3, padding=1)]
        self.net = nn.Sequential(*layers)
        self.out_ch = ch

    def forward(self, x):
        return self.net(x)


class Decoder(nn.Module):
    def __init__(self, ch, dim):
        super().__init__()
        layers = [nn.Conv1d(dim, ch, 3, padding=1)]
        for s in (2, 4, 4):
            nxt = ch * 2 // 3
            layers += [nn.ELU(), nn.ConvTranspose1d(ch, nxt, 2 * s, s, padding=s // 2), Residual(nxt, 1)]
            ch = nxt
        layers += [nn.ELU(), nn.Conv1d(ch, 1, 7, padding=3)]
        self.net = nn.Sequential(*layers)

    def forward(self, z):
        return self.net(z)


class Codebook(nn.Module):
    def __init__(self, k, dim, decay=0.97):
        super().__init__()
        self.decay = decay
        self.register_buffer("embed", torch.randn(k, dim) * 0.3)
        self.register_buffer("count", torch.ones(k))
        self.register_buffer("total", self.embed.clone())

    @torch.no_grad()
    def assign(self, flat):
        dist = ((flat.unsqueeze(1) - self.embed.unsqueeze(0)) ** 2).sum(-1)
        return dist.argmin(1)

    @torch.no_grad()
    def update(self, flat, idx):
        n = torch.bincount(idx, minlength=len(self.count)).float()
        s = torch.zeros_like(self.total).index_add_(0, idx, flat)
        self.count.lerp_(n, 1 - self.decay)
        self.total.lerp_(s, 1 - self.decay)
        self.embed.copy_(self.total / self.count.clamp_min(1e-3).unsqueeze(1))

    @torch.no_grad()
    def revive(self, flat):
        dead = (self.count < 0.05).nonzero().squeeze(1)
        if len(dead):
            pick = flat[torch.randint(0, len(flat), (len(dead),))]
            self.embed[dead] = pick
            self.total[dead] = pick
            self.count[dead] = 1.0
        return len(dead)

    def forward(self, flat):
        idx = self.assign(flat)
        q = F.embedding(idx, self.embed)
        if self.training:
            self.update(flat, idx)
        return q, idx


class ResidualVQ(nn.Module):
    def __init__(self, books, k, dim):
        super().__init__()
        self.books = nn.ModuleList(Codebook(k, dim) for _ in range(books))

    def forward(self, z, revive=False):
        b, d, t = z.shape
        flat = z.transpose(1, 2).reshape(-1, d)
        rest, out, used = flat.detach(), torch.zeros_like(flat), []
        for book in self.books:
            if revive:
                book.revive(rest)
            q, idx = book(rest)
            out = out + q
            rest = rest - q
            used.append(idx)
        commit = F.mse_loss(flat, out)
        out = flat + (out - flat).detach()
        return out.view(b, t, d).transpose(1, 2), commit, used


class Codec(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.enc = Encoder(a.width, a.dim)
        self.vq = ResidualVQ(a.books, a.codes, a.dim)
        self.dec = Decoder(self.enc.out_ch, a.dim)

    def forward(self, x, revive=False):
        q, commit, used = self.vq(self.enc(x), revive)
        return self.dec(q), commit, used


def spectral(x, y, n_fft=512):
    w = torch.hann_window(n_fft)
    sx = torch.stft(x.squeeze(1), n_fft, n_fft // 2, window=w, return_complex=True).abs()
    sy = torch.stft(y.squeeze(1), n_fft, n_fft // 2, window=w, return_complex=True).abs()
    return (sx - sy).abs().mean()


def main():
    a = parse()
    torch.manual_seed(a.seed)
    data = Synth(1500, a.length, seed=a.seed)
    model = Codec(a)
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, fused=True)
    print(f"{sum(p.numel() for p in model.parameters())} parameters")

    start = time.perf_counter()
    for step in range(1, a.steps + 1):
        x = data.batch(a.batch)
        y, commit, used = model(x, revive=step % 20 == 0)
        loss = F.l1_loss(y, x) + 0.1 * spectral(y, x) + 0.25 * commit
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % a.log_every == 0:
            alive = [int(torch.unique(i).numel()) for i in used]
            print(f"step {step} loss {loss.item():.4f} commit {commit.item():.4f} codes {alive}")
    loop = time.perf_counter() - start
    print(f"loop_s={loop:.3f} steps={a.steps}")


if __name__ == "__main__":
    main()
