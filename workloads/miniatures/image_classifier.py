"""Trains a small ResNet on images, in the manner of the PyTorch examples' imagenet/main.py; the code is our own.

    python -m workloads.miniatures.image_classifier --steps 100

What is slow in it, as in many copies of the original, and what mends it:

- the training process decodes and augments each image itself, inside the step: `--workers 1`
- with workers, each epoch starts them anew: `--persistent-workers`
- `.item()` for the meters of every step, which on a GPU waits for it: here on the CPU it costs nothing
- one intra-op thread: `--threads 2`
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate
from torch.utils.data import DataLoader, Dataset

SIDE: Final = 96
"""Pixels of a stored image's edge."""
CLASSES: Final = 10
MEAN, DEVIATION = (torch.tensor(three).view(3, 1, 1) for three in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


class Images(Dataset[tuple[Tensor, int]]):
    """Images, compressed as in a PNG file; `augment` has one transformed at random, else it is cut to the middle.

    What is random follows from seed, epoch and index, so that the number of workers changes no image.
    """

    def __init__(self, n_images: int, size: int, seed: int, *, augment: bool) -> None:
        self.size, self.seed, self.epoch, self.augment = size, seed, 0, augment
        draw = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(CLASSES, (n_images,), generator=draw).tolist()
        looks = torch.rand(CLASSES, 3, 8, 8, generator=torch.Generator().manual_seed(7))  # a class looks like this
        large = interpolate(looks, size=(SIDE, SIDE), mode="bilinear")
        self.files = []
        for label in self.labels:
            noisy = large[label] + 0.2 * torch.rand(3, SIDE, SIDE, generator=draw)
            self.files.append(zlib.compress((noisy.clamp(0, 1) * 255).to(torch.uint8).numpy().tobytes(), 1))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = torch.frombuffer(bytearray(zlib.decompress(self.files[index])), dtype=torch.uint8)
        image = image.view(3, SIDE, SIDE).float() / 255
        if self.augment:
            image = self._augmented(image, torch.Generator().manual_seed(self._draw(index)))
        else:
            edge = (SIDE - self.size) // 2
            image = image[:, edge : edge + self.size, edge : edge + self.size]
        return (image - MEAN) / DEVIATION, self.labels[index]

    def _draw(self, index: int) -> int:
        return (self.seed * 10_000 + self.epoch) * 1_000_000 + index

    def _augmented(self, image: Tensor, draw: torch.Generator) -> Tensor:
        """A random crop at the wanted size, perhaps mirrored, with other brightness, contrast and saturation."""
        amount = torch.rand(6, generator=draw).tolist()
        edge = int(SIDE * (0.4 + 0.6 * amount[0]))
        top, left = (int(share * (SIDE - edge)) for share in amount[1:3])
        crop = image[None, :, top : top + edge, left : left + edge]
        image = interpolate(crop, size=(self.size, self.size), mode="bilinear", antialias=True)[0]
        if torch.rand((), generator=draw).item() < 0.5:
            image = image.flip(2)
        image = image * (0.6 + 0.8 * amount[3])
        image = torch.lerp(image.mean().expand_as(image), image, 0.6 + 0.8 * amount[4])
        grey = image.mean(0, keepdim=True).expand_as(image)
        return torch.lerp(grey, image, 0.6 + 0.8 * amount[5]).clamp(0, 1)


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(inplace=True),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(n_out),
        )
        is_same = stride == 1 and n_in == n_out
        self.shortcut = (
            nn.Identity()
            if is_same
            else nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Transform images x, shape (batch, channels, height, width)."""
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet(width: int) -> nn.Sequential:
    """A stem, three residual blocks and a classifier."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        Residual(width, width, 1),
        Residual(width, 2 * width, 2),
        Residual(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, CLASSES),
    )


class Meter:
    """The last value of a measure and its mean so far."""

    def __init__(self, name: str) -> None:
        self.name, self.last, self.total, self.count = name, 0.0, 0.0, 0

    def update(self, value: float, count: int = 1) -> None:
        """Take in a value that stands for `count` samples."""
        self.last = value
        self.total += value * count
        self.count += count

    def __str__(self) -> str:
        return f"{self.name} {self.last:.4f} ({self.total / max(self.count, 1):.4f})"


@dataclass(frozen=True, kw_only=True)
class Run:
    """What training works with."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loader: DataLoader[tuple[Tensor, int]]
    checks: DataLoader[tuple[Tensor, int]]
    print_freq: int


def accuracy(output: Tensor, target: Tensor, best: tuple[int, ...] = (1, 5)) -> list[float]:
    """Per cent of samples whose class is among the first k guesses, for each k of `best`."""
    hits = output.topk(max(best), dim=1).indices.eq(target[:, None])
    return [100 * hits[:, :k].any(1).float().mean().item() for k in best]


def train_epoch(run: Run, n_steps: int) -> Meter:
    """Train on one epoch, `n_steps` steps at most; the meter of the loss."""
    data_s, step_s, losses, first, fifth = meters = [Meter(name) for name in ("data", "step", "loss", "acc1", "acc5")]
    run.model.train()
    begun = time.perf_counter()
    for step, (images, target) in enumerate(islice(run.loader, n_steps)):
        data_s.update(time.perf_counter() - begun)
        output = run.model(images)
        loss = cross_entropy(output, target)
        losses.update(loss.item(), len(images))
        for meter, percent in zip((first, fifth), accuracy(output.detach(), target), strict=True):
            meter.update(percent, len(images))
        run.optimizer.zero_grad()
        loss.backward()
        run.optimizer.step()
        step_s.update(time.perf_counter() - begun)
        begun = time.perf_counter()
        if step % run.print_freq == 0:
            print(f"[{step:4d}]", *meters, sep="  ")
    return losses


@torch.no_grad()
def validate(run: Run) -> None:
    """Print loss and accuracy on images that are not trained on."""
    losses, first, fifth = meters = [Meter(name) for name in ("loss", "acc1", "acc5")]
    run.model.eval()
    for images, target in run.checks:
        output = run.model(images)
        losses.update(cross_entropy(output, target).item(), len(images))
        for meter, percent in zip((first, fifth), accuracy(output, target), strict=True):
            meter.update(percent, len(images))
    print("validation", *meters, sep="  ")


def train(args: argparse.Namespace) -> float:
    """Train `args.steps` steps; the loss of the last one."""
    torch.manual_seed(args.seed)
    images = Images(args.images, args.size, args.seed, augment=True)
    checks = Images(args.images // 8, args.size, args.seed + 1, augment=False)
    model = resnet(args.width)
    run = Run(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay),
        loader=DataLoader(
            images,
            args.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=args.workers,
            persistent_workers=args.persistent_workers and args.workers > 0,
        ),
        checks=DataLoader(checks, args.batch_size),
        print_freq=args.print_freq,
    )
    left, loss = args.steps, float("nan")
    while left > 0:
        loss = train_epoch(run, left).last
        left -= len(run.loader)
        images.epoch += 1
        if not args.no_evaluate:
            validate(run)
    return loss


def build_parser() -> argparse.ArgumentParser:
    """The flags, named as in the original where it has them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="training steps of all epochs together")
    parser.add_argument("-j", "--workers", type=int, default=0, help="processes that make batches")
    parser.add_argument("--persistent-workers", action="store_true", help="keep them from epoch to epoch")
    parser.add_argument("-b", "--batch-size", type=int, default=16)
    parser.add_argument("--images", type=int, default=1024, help="images of an epoch")
    parser.add_argument("--size", type=int, default=48, help="pixels of an edge after the crop")
    parser.add_argument("--width", type=int, default=8, help="channels after the first convolution")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--wd", "--weight-decay", type=float, default=1e-4, dest="weight_decay")
    parser.add_argument("-p", "--print-freq", type=int, default=10)
    parser.add_argument("--no-evaluate", action="store_true", help="no validation after an epoch")
    parser.add_argument("--threads", type=int, default=1, help="intra-op threads")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    args = build_parser().parse_args(arguments)
    torch.set_num_threads(args.threads)
    print(f"final loss {train(args)!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
