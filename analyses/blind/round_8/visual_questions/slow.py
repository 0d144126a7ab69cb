"""Answer questions about pictures of coloured shapes (FiLM-conditioned ConvNet with a GRU question encoder)."""
import argparse
import copy
import gc
import json
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

COLOURS = np.array([[1, .1, .1], [.1, 1, .1], [.2, .3, 1], [1, 1, .2]], np.float32)
KINDS = ("square", "disc", "cross")
WORDS = ["<pad>", "how", "many", "is", "there", "a", "left", "of", "the", "red", "green", "blue", "yellow"] + list(KINDS)
WORD = {w: i for i, w in enumerate(WORDS)}
COLOUR_NAMES = ("red", "green", "blue", "yellow")
ANSWERS = 8  # no, yes, and the counts 0..5


class Scenes:
    def __init__(self, n, size, seed):
        rng = np.random.default_rng(seed)
        self.images = np.zeros((n, 3, size, size), np.float32)
        self.questions = np.zeros((n, 8), np.int64)
        self.answers = np.zeros(n, np.int64)
        for i in range(n):
            objects = [self.draw(self.images[i], rng, size) for _ in range(rng.integers(2, 6))]
            self.questions[i], self.answers[i] = self.ask(objects, rng)
        self.images += rng.normal(0, 0.03, self.images.shape).astype(np.float32)

    @staticmethod
    def draw(image, rng, size):
        r = int(rng.integers(4, 8))
        cy, cx = rng.integers(r, size - r, 2)
        colour, kind = int(rng.integers(4)), int(rng.integers(3))
        yy, xx = np.mgrid[-r:r, -r:r]
        mask = (np.ones_like(yy, bool), yy ** 2 + xx ** 2 < r * r, (abs(yy) < 2) | (abs(xx) < 2))[kind]
        patch = image[:, cy - r:cy + r, cx - r:cx + r]
        patch[:, mask] = COLOURS[colour][:, None]
        return colour, kind, cx

    @staticmethod
    def ask(objects, rng):
        colour, kind = int(rng.integers(4)), int(rng.integers(3))
        if rng.random() < 0.5:
            words = ["how", "many", COLOUR_NAMES[colour]]
            answer = 2 + sum(o[0] == colour for o in objects)
        else:
            words = ["is", "there", "a", COLOUR_NAMES[colour], KINDS[kind]]
            answer = int(any(o[:2] == (colour, kind) for o in objects))
        ids = [WORD[w] for w in words] + [0] * (8 - len(words))
        return ids, answer

    def tensors(self):
        return torch.from_numpy(self.images), torch.from_numpy(self.questions), torch.from_numpy(self.answers)


class FiLMBlock(nn.Module):
    def __init__(self, ch, q_dim):
        super().__init__()
        self.conv1 = nn.Conv2d(ch + 2, ch, 1)
        self.conv2 = nn.Conv2d(ch, ch, 3, padding=1)
        self.norm = nn.GroupNorm(8, ch, affine=False)
        self.film = nn.Linear(q_dim, 2 * ch)

    def forward(self, x, q, coords):
        x = F.relu(self.conv1(torch.cat([x, coords.expand(len(x), -1, -1, -1)], 1)))
        gamma, beta = self.film(q)[:, :, None, None].chunk(2, 1)
        return x + F.relu(self.norm(self.conv2(x)) * (1 + gamma) + beta)


class FiLMNet(nn.Module):
    def __init__(self, ch=64, q_dim=128, blocks=3, size=64):
        super().__init__()
        self.words = nn.Embedding(len(WORDS), 48, padding_idx=0)
        self.gru = nn.GRU(48, q_dim, batch_first=True)
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU(),
                                  nn.Conv2d(32, ch, 3, stride=2, padding=1), nn.ReLU())
        self.blocks = nn.ModuleList(FiLMBlock(ch, q_dim) for _ in range(blocks))
        self.head = nn.Sequential(nn.Linear(ch, 128), nn.ReLU(), nn.Linear(128, ANSWERS))
        lin = torch.linspace(-1, 1, size // 4)
        self.register_buffer("coords", torch.stack(torch.meshgrid(lin, lin, indexing="ij"))[None])

    def forward(self, image, question):
        q = self.gru(self.words(question))[1][0]
        x = self.stem(image)
        for block in self.blocks:
            x = block(x, q, self.coords)
        return self.head(x.amax(dim=(2, 3)))


@torch.no_grad()
def evaluate(model, images, questions, answers):
    model.eval()
    right = sum((model(a, b).argmax(1) == c).sum() for a, b, c in
                zip(images.split(128), questions.split(128), answers.split(128)))
    model.train()
    return int(right) / len(answers)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--train", type=int, default=3000)
    p.add_argument("--size", type=int, default=64)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--eval-every", type=int, default=50)
    p.add_argument("--seed", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    train = Scenes(args.train, args.size, args.seed).tensors()
    valid = Scenes(256, args.size, args.seed + 1).tensors()
    model = FiLMNet(size=args.size)
    opt = torch.optim.Adam(model.parameters(), lr=5e-4)
    gen = torch.Generator().manual_seed(args.seed)

    def one_step():
        idx = torch.randint(args.train, (args.batch,), generator=gen)
        image, question, answer = (t[idx] for t in train)
        logits = model(image, question)
        loss = F.cross_entropy(logits, answer)
        opt.zero_grad(set_to_none=False)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        return loss, logits, answer, norm

    one_step()
    best, best_state = 0.0, copy.deepcopy(model.state_dict())
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log.jsonl"), "w") as sink:
        t0 = time.perf_counter()
        for step in range(1, args.steps + 1):
            loss, logits, answer, norm = one_step()
            row = {"step": step, "loss": loss.item(), "acc": (logits.argmax(1) == answer).float().mean().item(),
                   "norm": norm.item()}
            for name, prm in model.named_parameters():
                if name.endswith("weight"):
                    row["w/" + name] = prm.detach().norm().item()
            sink.write(json.dumps(row) + "\n")
            sink.flush()
            if step % args.eval_every == 0:
                acc = evaluate(model, *valid)
                print("step %d loss %.4f accuracy %.3f" % (step, row["loss"], acc))
                if acc > best:
                    best, best_state = acc, copy.deepcopy(model.state_dict())
                os.fsync(sink.fileno())
                gc.collect()
        print("best accuracy %.3f" % best)
        print("loop_s=%.3f steps=%d" % (time.perf_counter() - t0, args.steps))


if __name__ == "__main__":
    main()
