# single-shot detector on synthetic scenes, one feature level
import time
import math
import random
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(7)
random.seed(7)

IMG, STRIDE, NCLS = 64, 8, 3
SIZES = (10.0, 16.0, 24.0)


def make_anchors():
    out = []
    for gy in range(IMG // STRIDE):
        for gx in range(IMG // STRIDE):
            cx, cy = (gx + 0.5) * STRIDE, (gy + 0.5) * STRIDE
            for s in SIZES:
                out.append([cx - s / 2, cy - s / 2, cx + s / 2, cy + s / 2])
    return torch.tensor(out)


ANCHORS = make_anchors()


def scene():
    img = torch.randn(3, IMG, IMG) * 0.1
    boxes, labels = [], []
    for _ in range(random.randint(2, 5)):
        w, h = random.uniform(8, 26), random.uniform(8, 26)
        x, y = random.uniform(0, IMG - w), random.uniform(0, IMG - h)
        c = random.randrange(NCLS)
        img[c, int(y):int(y + h), int(x):int(x + w)] += 0.8
        boxes.append([x, y, x + w, y + h])
        labels.append(c)
    return img, torch.tensor(boxes), torch.tensor(labels)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 48, 3, 1, 1), nn.ReLU(),
            nn.Conv2d(48, 48, 3, 2, 1), nn.ReLU(), nn.Conv2d(48, 64, 3, 2, 1), nn.ReLU())
        self.cls = nn.Conv2d(64, len(SIZES) * (NCLS + 1), 3, 1, 1)
        self.reg = nn.Conv2d(64, len(SIZES) * 4, 3, 1, 1)

    def forward(self, x):
        f = self.body(x)
        b = x.shape[0]
        return (self.cls(f).permute(0, 2, 3, 1).reshape(b, -1, NCLS + 1),
                self.reg(f).permute(0, 2, 3, 1).reshape(b, -1, 4))


def iou_table(anchors, boxes):
    lt = torch.maximum(anchors[:, None, :2], boxes[None, :, :2])
    rb = torch.minimum(anchors[:, None, 2:], boxes[None, :, 2:])
    inter = (rb - lt).clamp(min=0).prod(2)
    area_a = (anchors[:, 2:] - anchors[:, :2]).prod(1)
    area_b = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    return inter / (area_a[:, None] + area_b[None] - inter)


def encode(anchors, boxes):
    aw = anchors[:, 2:] - anchors[:, :2]
    bw = boxes[:, 2:] - boxes[:, :2]
    ac = anchors[:, :2] + aw / 2
    bc = boxes[:, :2] + bw / 2
    return torch.cat([(bc - ac) / aw, torch.log(bw / aw)], 1)


def assign(boxes, labels):
    table = iou_table(ANCHORS, boxes)
    best, which = table.max(1)
    target = torch.where(best > 0.4, labels[which], torch.full_like(which, NCLS))
    top = table.argmax(0)
    target[top] = labels
    which[top] = torch.arange(len(labels))
    return target, encode(ANCHORS, boxes[which])


def detection_loss(cls, reg, targets):
    ct = torch.stack([t[0] for t in targets])
    rt = torch.stack([t[1] for t in targets])
    pos = ct < NCLS
    lc = F.cross_entropy(cls.reshape(-1, NCLS + 1), ct.reshape(-1), weight=torch.tensor([1.0, 1.0, 1.0, 0.15]))
    lr = F.smooth_l1_loss(reg[pos], rt[pos])
    return lc + lr


data = [scene() for _ in range(240)]
net = Detector()
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
B, EPOCHS = 12, 7
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: 0.5 * (1 + math.cos(math.pi * s / (EPOCHS * 20))))


def step(batch):
    imgs = torch.stack([b[0] for b in batch])
    cls, reg = net(imgs)
    loss = detection_loss(cls, reg, [assign(b[1], b[2]) for b in batch])
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    opt.step()
    sched.step()
    return loss.item()


for _ in range(2):
    step(data[:B])
steps = 0
t0 = time.perf_counter()
for epoch in range(EPOCHS):
    random.shuffle(data)
    losses = []
    for i in range(0, len(data), B):
        losses.append(step(data[i:i + B]))
        steps += 1
    print(f"epoch {epoch}: {sum(losses) / len(losses):.4f}")
print(f"loop_s={time.perf_counter() - t0:.3f} steps={steps}")
