"""The training loop of a rung, and what its timed steps gave."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

from workloads.memory import peak_bytes, reset_peak
from workloads.recipe.data import Batch, CachedCaptions, build_loader, plan
from workloads.recipe.features import Features, fill
from workloads.recipe.model import Recipe, build_model
from workloads.recipe.options import Doses, Layers
from workloads.timing import StepClock, make_clock, percentile, timed_step
from workloads.told import told
from workloads.vlm.data import Captions, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the loop works with."""

    doses: Doses
    device: torch.device
    model: Recipe
    optimizer: torch.optim.Optimizer
    loader: DataLoader[Sample]
    clock: StepClock


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step worked on, and its mean loss per labelled token."""

    tokens: int
    padded_tokens: int
    samples: int
    loss: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the timed steps gave: real tokens, those with padding, durations in ns, losses of all steps."""

    tokens: int
    padded_tokens: int
    samples: int
    steps_ns: list[int]
    losses: list[float]
    peak_bytes: int

    @property
    def tokens_per_s(self) -> float:
        """Real tokens per second."""
        return self.tokens / sum(self.steps_ns) * 1e9

    @property
    def pad_fraction(self) -> float:
        """The share of all computed tokens that are padding, 0-1."""
        return 1 - self.tokens / self.padded_tokens

    @property
    def step_p50_ms(self) -> float:
        """The median step in ms."""
        return percentile(self.steps_ns, 0.5) / 1e6


@contextmanager
def built_job(layers: Layers, doses: Doses, device: torch.device, *, folder: Path | None = None) -> Iterator[Job]:
    """Gives a job whose weights, samples and order follow from the seed; cached features go into `folder`."""
    if doses.threads > 0:
        torch.set_num_threads(doses.threads)
    if doses.is_tf32:
        torch.set_float32_matmul_precision("high")
    torch.manual_seed(doses.seed)
    model = build_model(layers, doses, device)
    captions = Captions(doses.shape, n_samples=doses.n_steps(layers.batch) * layers.batch, seed=doses.seed)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="recipe-", dir=folder) as name:
        dataset: Dataset[Sample] = captions
        if layers.cache != "off":
            shape = (doses.shape.n_vision, doses.shape.tower_width)
            shard = doses.shard if layers.cache == "shards" else 1
            features = Features(Path(name) / "features.f16", n_samples=len(captions), shape=shape, shard=shard)
            fill(features, model.tower, captions, device)
            dataset = CachedCaptions(captions, features)
        yield Job(
            doses=doses,
            device=device,
            model=model,
            optimizer=torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=doses.lr, fused=True),
            loader=_loader(layers, doses, dataset, captions, is_cuda=device.type == "cuda"),
            clock=make_clock(device.type),
        )


def _loader(
    layers: Layers, doses: Doses, dataset: Dataset[Sample], captions: Captions, *, is_cuda: bool
) -> DataLoader[Sample]:
    batches = plan(
        captions,
        n_steps=doses.n_steps(layers.batch),
        batch=layers.batch,
        is_bucketed=layers.is_bucketed,
        skip=doses.skip,
        seed=doses.seed,
    )
    return build_loader(
        dataset,
        batches,
        n_vision=doses.shape.n_vision,
        is_packed=layers.is_packed,
        is_pinned=is_cuda and doses.is_pinned,
    )


def train_step(job: Job, batches: Iterator[Batch]) -> Step:
    """Does one step: the loss is a mean over the labelled tokens of its batch."""
    on_host = next(batches)
    n_labelled = int((on_host.splice.labels >= 0).sum())
    batch = on_host.to(job.device)
    loss = job.model(batch) / n_labelled
    loss.backward()
    job.optimizer.step()
    job.optimizer.zero_grad(set_to_none=True)
    splice = on_host.splice
    return Step(tokens=splice.n_real, padded_tokens=splice.n_padded, samples=len(splice.lengths), loss=loss.detach())


def run(job: Job) -> Outcome:
    """Runs all steps; those after the first `skip` are counted."""
    reset_peak(job.device)  # filling the features is not training
    steps: list[Step] = []
    batches = iter(job.loader)
    for _ in range(len(job.loader)):
        with timed_step(job.clock):
            step = train_step(job, batches)
        told(tokens=step.tokens, padded_tokens=step.padded_tokens, samples=step.samples)
        steps.append(step)
    counted = steps[job.doses.skip :]
    return Outcome(
        tokens=sum(step.tokens for step in counted),
        padded_tokens=sum(step.padded_tokens for step in counted),
        samples=sum(step.samples for step in counted),
        steps_ns=job.clock.durations_ns()[job.doses.skip :],
        losses=[float(step.loss) for step in steps],
        peak_bytes=peak_bytes(job.device),
    )
