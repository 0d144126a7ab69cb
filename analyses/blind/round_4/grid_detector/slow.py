"""Anchor-grid detector for coloured boxes: matching, loss, decoding and suppression all in plain PyTorch."""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SIDE, CLASSES = 96, 3
SIZES = ((12.0, 18.0), (28.0, 40.0))
STRIDES = (8, 16)


def scene(n, seed):
    """Images with one to four filled boxes; the class is the colour channel that is strongest."""
    g = torch.Generator().manual_seed(seed)
    images = 0.15 * torch.randn(n, 3, SIDE, SIDE, generator=g)
    targets = []
    for i in range(n):
        k = int(torch.randint(1, 5, (1,), generator=g))
        wh = torch.rand(k, 2, generator=g) * 30 + 10
        xy = torch.rand(k, 2, generator=g) * (SIDE - wh)
        boxes = torch.cat([xy, xy + wh], 1).round()
        labels = torch.randint(0, CLASSES, (k,), generator=g)
        for (x0, y0, x1, y1), c in zip(boxes.int().tolist(), labels.tolist()):
            images[i, :, y0:y1, x0:x1] *= 0.5
            images[i, c, y0:y1, x0:x1] += 0.9
        targets.append((boxes, labels))
    return images, targets


def iou(a, b):
    lt = torch.maximum(a[:, None, :2], b[None, :, :2])
    rb = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = (rb - lt).clamp(min=0).prod(2)
    area = lambda t: (t[:, 2:] - t[:, :2]).prod(1)
    return inter / (area(a)[:, None] + area(b)[None] - inter)


def make_anchors():
    rows = []
    for stride, sizes in zip(STRIDES, SIZES):
        c = (torch.arange(SIDE // stride) + 0.5) * stride
        cy, cx = torch.meshgrid(c, c, indexing="ij")
        centre = torch.stack([cx, cy], -1)[:, :, None].expand(-1, -1, len(sizes), -1)
        half = torch.tensor(sizes).view(1, 1, -1, 1) / 2
        rows.append(torch.cat([centre - half, centre + half], -1).reshape(-1, 4))
    return torch.cat(rows)


def encode(boxes, anchors):
    awh, bwh = anchors[:, 2:] - anchors[:, :2], boxes[:, 2:] - boxes[:, :2]
    shift = ((boxes[:, :2] + bwh / 2) - (anchors[:, :2] + awh / 2)) / awh
    return torch.cat([shift, (bwh / awh).log()], 1)


def decode(delta, anchors):
    awh = anchors[:, 2:] - anchors[:, :2]
    centre = anchors[:, :2] + awh / 2 + delta[..., :2] * awh
    wh = delta[..., 2:].clamp(max=3).exp() * awh
    return torch.cat([centre - wh / 2, centre + wh / 2], -1)


def match(target, anchors):
    boxes, labels = target
    m = iou(anchors, boxes)
    best, which = m.max(1)
    best[m.argmax(0)] = 1.0
    which[m.argmax(0)] = torch.arange(len(boxes))
    cls = torch.where(best >= 0.5, labels[which], torch.where(best >= 0.4, -1, CLASSES))
    return cls, encode(boxes[which], anchors)


class Detector(nn.Module):
    def __init__(self, c=24):
        super().__init__()

        def unit(i, o, s):
            return nn.Sequential(nn.Conv2d(i, o, 3, s, 1), nn.GroupNorm(8, o), nn.ReLU(inplace=True))

        self.low = nn.Sequential(unit(3, c, 2), unit(c, 2 * c, 2), unit(2 * c, 2 * c, 1), unit(2 * c, 4 * c, 2))
        self.high = unit(4 * c, 4 * c, 2)
        self.heads = nn.ModuleList(nn.Conv2d(4 * c, 2 * (CLASSES + 4), 3, padding=1) for _ in STRIDES)
        for h in self.heads:
            nn.init.constant_(h.bias.view(2, -1)[:, :CLASSES], -math.log(99))

    def forward(self, x):
        f1 = self.low(x)
        outs = [h(f).permute(0, 2, 3, 1).reshape(len(x), -1, CLASSES + 4)
                for h, f in zip(self.heads, (f1, self.high(f1)))]
        return torch.cat(outs, 1).split([CLASSES, 4], 2)


def criterion(logits, delta, cls, goal):
    hot = F.one_hot(cls.clamp(min=0), CLASSES + 1)[..., :CLASSES].float()
    p = logits.sigmoid()
    ce = F.binary_cross_entropy_with_logits(logits, hot, reduction="none")
    focal = ce * (hot * 0.25 * (1 - p) ** 2 + (1 - hot) * 0.75 * p ** 2)
    pos = (cls >= 0) & (cls < CLASSES)
    n = pos.sum().clamp(min=1)
    return (focal * (cls >= 0)[..., None]).sum() / n * 4 + F.smooth_l1_loss(delta[pos], goal[pos], reduction="sum") / n


def suppress(boxes, scores, thr=0.5):
    order = scores.argsort(descending=True)
    keep = []
    while len(order):
        i, order = order[0], order[1:]
        keep.append(i)
        order = order[iou(boxes[i][None], boxes[order])[0] <= thr]
    return torch.stack(keep) if keep else order


def postprocess(logits, delta, anchors, min_score=0.3):
    """Per image: boxes, labels and scores that are left after suppression within each class."""
    probs, boxes = logits.sigmoid(), decode(delta, anchors)
    results = []
    for p, b in zip(probs, boxes):
        found = []
        for c in range(CLASSES):
            keep = suppress(b, p[:, c])
            keep = keep[p[keep, c] > min_score]
            found += [(b[k], c, p[k, c]) for k in keep]
        results.append(found)
    return results


@torch.no_grad()
def evaluate(net, images, targets, anchors):
    net.eval()
    found = postprocess(*net(images), anchors)
    net.train()
    hits = total = said = 0
    for dets, (boxes, labels) in zip(found, targets):
        free = torch.ones(len(boxes), dtype=torch.bool)
        for b, c, _ in sorted(dets, key=lambda d: -d[2]):
            o = iou(b[None], boxes)[0] * free * (labels == c)
            if o.max() >= 0.5:
                hits += 1
                free[o.argmax()] = False
        said += len(dets)
        total += len(boxes)
    return hits / max(1, said), hits / total


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--batch", type=int, default=20)
    ap.add_argument("--eval-every", type=int, default=30)
    ap.add_argument("--eval-images", type=int, default=24)
    ap.add_argument("--lr", type=float, default=1.5e-3)
    ap.add_argument("--seed", type=int, default=6)
    a = ap.parse_args()
    torch.manual_seed(a.seed)
    anchors = make_anchors()
    images, targets = scene(600, 1)
    test_images, test_targets = scene(a.eval_images, 2)
    matched = [match(t, anchors) for t in targets]
    cls_all, goal_all = (torch.stack(v) for v in zip(*matched))
    net = Detector()
    opt = torch.optim.AdamW(net.parameters(), lr=a.lr, weight_decay=1e-3, fused=True)

    t0 = time.perf_counter()
    for step in range(1, a.steps + 1):
        i = torch.randint(len(images), (a.batch,))
        logits, delta = net(images[i])
        loss = criterion(logits, delta, cls_all[i], goal_all[i])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        opt.step()
        if step % a.eval_every == 0:
            prec, rec = evaluate(net, test_images, test_targets, anchors)
            print(f"step {step:4d} loss {loss.item():.3f} precision {prec:.3f} recall {rec:.3f}", flush=True)
    print("loop_s=%.3f steps=%d" % (time.perf_counter() - t0, a.steps))


if __name__ == "__main__":
    main()
