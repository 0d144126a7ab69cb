"""The training loop: accumulate, step, and know which steps nobody has profiled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.utils.data import DataLoader

from workloads.memory import peak_bytes
from workloads.timing import StepClock, make_clock, percentile, timed_step
from workloads.told import told
from workloads.vlm.data import Batch, Captions, Sample, build_loader, micro_batches
from workloads.vlm.model import Vlm, build_model
from workloads.vlm.options import Choices
from workloads.vlm.sizes import SIZES
from workloads.vlm.world import shard, sync_gradients
from workloads.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one step of one rank worked on: tokens without and with padding, samples, and its part of the loss."""

    tokens: int
    padded_tokens: int
    samples: int
    loss: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a training loop works with."""

    choices: Choices
    world: World
    model: Vlm
    optimizer: torch.optim.Optimizer
    captions: Captions
    loader: DataLoader[Sample]
    clock: StepClock

    @property
    def n_samples(self) -> int:
        """The samples of one step, over all ranks."""
        return self.world.n_ranks * self.choices.batch * self.choices.accumulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run gives, the same on every rank but for the clock: times in ns of the steps that count.

    `n_profiled` steps were left out because a profiler ran in them; if it ran in all of them, they count after all.
    `tokens` are real ones of all ranks in the counted steps, `padded_tokens` and `samples` likewise.
    """

    first_loss: float
    final_loss: float
    steps_ns: list[int]
    n_profiled: int
    tokens: int
    padded_tokens: int
    samples: int
    peak_bytes: int

    @property
    def tokens_per_s(self) -> float:
        """Real tokens per second over the counted steps."""
        return self.tokens / sum(self.steps_ns) * 1e9

    @property
    def step_p50_ms(self) -> float:
        """The median step in ms."""
        return percentile(self.steps_ns, 0.5) / 1e6


def build_job(choices: Choices, world: World) -> Job:
    """Gives a job whose weights and data follow from the seed, on however many ranks it runs."""
    if choices.threads > 0:
        torch.set_num_threads(choices.threads)
    torch.manual_seed(choices.seed)
    sizes = SIZES[choices.size]
    model = build_model(
        sizes,
        stage=choices.stage,
        lora_rank=choices.lora_rank,
        is_tied=choices.is_tied,
        is_checkpointed=choices.is_checkpointed,
    ).to(world.device)
    shard(model, world, is_bf16=choices.precision == "bf16", is_prefetched=choices.is_prefetched)
    n_samples = choices.steps * choices.accumulation * choices.batch * world.n_ranks
    captions = Captions(sizes, n_samples=n_samples, seed=choices.seed)
    batches = micro_batches(
        n_steps=choices.steps,
        batch=choices.batch,
        accumulation=choices.accumulation,
        rank=world.rank,
        n_ranks=world.n_ranks,
    )
    return Job(
        choices=choices,
        world=world,
        model=model,
        # Fused: one call for all parameters. Else each of them pays for a dozen dispatches through DTensor.
        optimizer=torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=choices.lr, fused=True),
        captions=captions,
        loader=build_loader(captions, batches, pin_memory=world.device.type == "cuda"),
        clock=make_clock(world.device.type),
    )


def train_step(job: Job, batches: Iterator[Batch], *, number: int) -> Work:
    """Does one step: every micro-batch forward and backward, then the optimizer.

    The loss is a mean over the labelled tokens of all ranks and micro-batches, thus the same however the samples are
    divided. FSDP averages gradients over the ranks, hence the factor.
    """
    choices, n_ranks = job.choices, job.world.n_ranks
    n_labelled = job.captions.n_labelled(number * job.n_samples, (number + 1) * job.n_samples)
    tokens = padded_tokens = 0
    loss = torch.zeros((), device=job.world.device)
    for micro in range(choices.accumulation):
        on_host = next(batches)
        batch = on_host.to(job.world.device)
        sync_gradients(job.model, is_last=micro == choices.accumulation - 1)
        part = job.model(batch.images, batch.splice) / n_labelled
        (part * n_ranks).backward()
        loss += part.detach()
        tokens += on_host.splice.n_real
        padded_tokens += on_host.splice.n_padded
    job.optimizer.step()
    job.optimizer.zero_grad(set_to_none=True)
    return Work(tokens=tokens, padded_tokens=padded_tokens, samples=choices.batch * choices.accumulation, loss=loss)


def run(job: Job) -> Outcome:
    """Runs all steps; those after the first `skip` in which no profiler ran are counted."""
    choices = job.choices
    batches = iter(job.loader)
    works: list[Work] = []
    is_profiled: list[bool] = []
    for number in range(choices.steps):
        was_profiled = _is_profiling()
        with timed_step(job.clock):
            work = train_step(job, batches, number=number)
        told(tokens=work.tokens, padded_tokens=work.padded_tokens, samples=work.samples)
        works.append(work)
        is_profiled.append(was_profiled or _is_profiling())
    return _outcome(job, works, is_profiled)


def _is_profiling() -> bool:
    # Asked, not caused: a throughput must not hold steps that somebody's profiler slows down. A trace is written where
    # a step begins, with the profiler still on, so that the step which stalls for it is left out as well.
    return bool(torch.autograd._profiler_enabled())  # noqa: SLF001 - torch has no public way to ask


def _outcome(job: Job, works: list[Work], is_profiled: list[bool]) -> Outcome:
    durations_ns = job.clock.durations_ns()
    steady = range(job.choices.skip, len(works))
    counted = [number for number in steady if not is_profiled[number]] or list(steady)
    losses = [job.world.summed(float(works[number].loss)) for number in (0, -1)]
    return Outcome(
        first_loss=losses[0],
        final_loss=losses[1],
        steps_ns=[durations_ns[number] for number in counted],
        n_profiled=len(steady) - len(counted),
        tokens=round(job.world.summed(sum(works[number].tokens for number in counted))),
        padded_tokens=round(job.world.summed(sum(works[number].padded_tokens for number in counted))),
        samples=len(counted) * job.n_samples,
        peak_bytes=round(job.world.largest(peak_bytes(job.world.device))),
    )
