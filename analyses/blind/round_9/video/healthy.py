# Next-frame prediction on bouncing shapes with a convolutional GRU.
#
#   python slow.py
#
# A clip is read window by window; the state of the GRU goes on from one window to the next, so that
# the model learns motion over the whole clip. The loss of each window is kept apart to see how the
# error falls as the model sees more of the clip.
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = 11
SIZE = 32            # side of a frame
FRAMES = 9           # frames of a clip, the last one is only a target
WINDOW = 2           # frames in a window
BATCH = 4
STEPS = 70
CLIPS = 320
HIDDEN = 32
LR = 1e-3
CLIP_NORM = 1.0
PRINT_EVERY = 10


def render_clips(n, frames, size, rng):
    """uint8 clips (n, frames, size, size): two squares or discs that bounce off the walls."""
    yy, xx = np.mgrid[:size, :size]
    out = np.zeros((n, frames, size, size), dtype=np.uint8)
    for c in range(n):
        for _ in range(2):
            r = rng.uniform(3, 5)
            pos = rng.uniform(r, size - r, 2)
            vel = rng.uniform(-2.5, 2.5, 2)
            disc = rng.random() < 0.5
            grey = rng.integers(120, 255)
            for f in range(frames):
                dy, dx = yy - pos[0], xx - pos[1]
                mask = dy * dy + dx * dx < r * r if disc else np.maximum(abs(dy), abs(dx)) < r * 0.85
                out[c, f][mask] = grey
                pos = pos + vel
                for k in range(2):
                    if pos[k] < r or pos[k] > size - r:
                        vel[k] = -vel[k]
                        pos[k] = np.clip(pos[k], r, size - r)
    return out


class ConvGRUCell(nn.Module):
    def __init__(self, cin, hidden, kernel=3):
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Conv2d(cin + hidden, 2 * hidden, kernel, padding=kernel // 2)
        self.cand = nn.Conv2d(cin + hidden, hidden, kernel, padding=kernel // 2)

    def forward(self, x, h):
        z, r = torch.sigmoid(self.gates(torch.cat([x, h], 1))).chunk(2, 1)
        n = torch.tanh(self.cand(torch.cat([x, r * h], 1)))
        return (1 - z) * h + z * n


class FrameModel(nn.Module):
    def __init__(self, hidden=HIDDEN):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.SiLU(),
            nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.SiLU())
        self.cell1 = ConvGRUCell(24, hidden)
        self.cell2 = ConvGRUCell(hidden, hidden)
        self.decode = nn.Sequential(
            nn.Conv2d(hidden, 64, 3, padding=1), nn.SiLU(), nn.PixelShuffle(2),
            nn.Conv2d(16, 1, 3, padding=1))

    def initial_state(self, batch, device=None):
        shape = (batch, self.cell1.hidden, SIZE // 2, SIZE // 2)
        return torch.zeros(shape, device=device), torch.zeros(shape, device=device)

    def forward(self, frames, memory):
        h1, h2 = memory
        preds = []
        for t in range(frames.shape[1]):
            h1 = self.cell1(self.encode(frames[:, t]), h1)
            h2 = self.cell2(h1, h2)
            preds.append(self.decode(h2))
        return torch.stack(preds, 1), (h1, h2)


def train_step(model, clip, opt):
    """One optimizer step on a batch of clips; returns the loss of each window."""
    n_windows = (FRAMES - 1) // WINDOW
    memory = model.initial_state(clip.shape[0])
    losses = []
    total = 0.0
    opt.zero_grad(set_to_none=True)
    for i in range(n_windows):
        lo = i * WINDOW
        logits, memory = model(clip[:, lo:lo + WINDOW], memory)
        target = clip[:, lo + 1:lo + WINDOW + 1]
        loss = F.binary_cross_entropy_with_logits(logits, target) / n_windows
        total = total + loss
        losses.append(loss.detach() * n_windows)
    total.backward()
    nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
    opt.step()
    return torch.stack(losses)


def main():
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    clips = torch.from_numpy(render_clips(CLIPS, FRAMES, SIZE, rng))
    model = FrameModel()
    opt = torch.optim.Adam(model.parameters(), lr=LR)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e3:.0f} k parameters, {CLIPS} clips")

    by_part = torch.zeros((FRAMES - 1) // WINDOW)
    perm = torch.randperm(CLIPS)
    at = 0
    t0 = time.perf_counter()
    for step in range(1, STEPS + 1):
        if at + BATCH > CLIPS:
            perm, at = torch.randperm(CLIPS), 0
        batch = clips[perm[at:at + BATCH]].unsqueeze(2).float() / 255
        at += BATCH
        by_part += train_step(model, batch, opt)
        if step % PRINT_EVERY == 0:
            by_window = " ".join(f"{v:.3f}" for v in (by_part / PRINT_EVERY).tolist())
            print(f"step {step}: loss by window {by_window}")
            by_part.zero_()
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={STEPS}")


if __name__ == "__main__":
    main()
