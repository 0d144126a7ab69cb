# Multiple-instance learning on whole-slide patch features: one slide (bag of patches) per step, gated attention.
import os
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(13)
rng = np.random.default_rng(13)

FEAT, HIDDEN, ATT = 256, 640, 256
SLIDES, VAL_SLIDES, EPOCHS = 60, 8, 2
ACCUM = 1
TOPK = 10


class SlideStore:
    """Patch features of each slide in a file of its own, half precision, as the extractor leaves them."""

    def __init__(self, root, n):
        self.root = root
        self.labels = []
        direction = rng.normal(size=FEAT)
        for i in range(n):
            k = int(rng.integers(1300, 2000))
            x = rng.normal(size=(k, FEAT))
            y = int(rng.random() < 0.5)
            if y:
                tumour = rng.choice(k, size=max(8, k // 25), replace=False)
                x[tumour] += 0.35 * direction
            np.save(self.path(i), x.astype(np.float16))
            self.labels.append(y)

    def path(self, i):
        return os.path.join(self.root, f"slide_{i:04d}.npy")

    def __getitem__(self, i):
        x = np.load(self.path(i))
        return torch.from_numpy(x.astype(np.float32)), torch.tensor([float(self.labels[i])])

    def __len__(self):
        return len(self.labels)


class GatedMIL(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(FEAT, HIDDEN), nn.ReLU(inplace=True), nn.Linear(HIDDEN, HIDDEN),
                                   nn.ReLU(inplace=True), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(inplace=True))
        self.v, self.u = nn.Linear(HIDDEN, ATT), nn.Linear(HIDDEN, ATT)
        self.w = nn.Linear(ATT, 1)
        self.out = nn.Linear(HIDDEN, 1)

    def forward(self, bag):
        h = self.embed(bag)
        a = self.w(torch.tanh(self.v(h)) * torch.sigmoid(self.u(h))).squeeze(-1)
        a = a.softmax(0)
        return self.out(a @ h), a


class TopPatches:
    """Keeps the most attended patches of each slide for the pathologist's page."""

    def __init__(self, k):
        self.k = k
        self.table = {}

    def update(self, slide, attention):
        a, j = attention.detach().topk(self.k)
        self.table[slide] = list(zip(a.tolist(), j.tolist()))


@torch.no_grad()
def evaluate(net, store, slides):
    net.eval()
    loss, right = 0.0, 0
    for i in slides:
        bag, y = store[i]
        logit, _ = net(bag)
        loss += F.binary_cross_entropy_with_logits(logit, y).item()
        right += int((logit.item() > 0) == bool(y.item()))
    net.train()
    return loss / len(slides), right / len(slides)


root = tempfile.mkdtemp(prefix="slides_")
store = SlideStore(root, SLIDES + VAL_SLIDES)
train_ids = np.arange(SLIDES)
val_ids = np.arange(SLIDES, SLIDES + VAL_SLIDES)
net = GatedMIL()
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)
top = TopPatches(TOPK)
net(store[0][0])

steps = 0
begin = time.perf_counter()
for epoch in range(EPOCHS):
    rng.shuffle(train_ids)
    seen, right = 0.0, 0
    for i in train_ids:
        bag, y = store[i]
        logit, att = net(bag)
        loss = F.binary_cross_entropy_with_logits(logit, y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        steps += 1
        top.update(int(i), att)
        seen += loss.item()
        right += int((logit.item() > 0) == bool(y.item()))
        if steps % 20 == 0:
            print(f"{steps:4d} slide {i:3d} bag {len(bag)} loss {loss.item():.3f} peak {att.max().item():.4f}", flush=True)
    vl, va = evaluate(net, store, val_ids)
    print(f"epoch {epoch} train {seen / SLIDES:.4f} acc {right / SLIDES:.3f} | val {vl:.4f} acc {va:.3f}", flush=True)
spent = time.perf_counter() - begin
shutil.rmtree(root)
print("loop_s=%.3f steps=%d" % (spent, steps))
