"""Trains a small classifier in one of four regimes and times its steps; profiling is left to `profkit capture`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from workloads.data import Batch, build_loader
from workloads.heap import warm_heap
from workloads.models import build_model
from workloads.options import build_parser, resolve, resolve_device
from workloads.presets import Doses
from workloads.timing import StepClock, StepTimes, make_clock, summarise, timed_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a training loop works with."""

    doses: Doses
    device: torch.device
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loader: DataLoader[Batch]
    clock: StepClock


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run gives: its last loss and its steps in ns, the first few left out."""

    final_loss: float
    times: StepTimes
    steps_ns: list[int]


def build_job(regime: str, doses: Doses, device: torch.device) -> Job:
    """Gives a job whose weights and data follow from `doses.seed`; sets the intra-op threads of torch."""
    torch.manual_seed(doses.seed)
    if doses.threads > 0:
        torch.set_num_threads(doses.threads)
    model = build_model(regime, doses).to(device)
    return Job(
        doses=doses,
        device=device,
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=doses.lr, fused=True),
        loader=build_loader(doses, pin_memory=device.type == "cuda"),
        clock=make_clock(device.type),
    )


def forward_context(doses: Doses, device: torch.device) -> AbstractContextManager[object]:
    """Gives the context of the forward pass: autocast to bfloat16 for dtype bf16, else one without effect."""
    context: AbstractContextManager[object] = torch.autocast(
        device.type, dtype=torch.bfloat16, enabled=doses.dtype == "bf16"
    )
    return context


def train_step(job: Job, batches: Iterator[Batch]) -> Tensor:
    """Does one step and gives the loss, still on the device."""
    inputs, labels = next(batches)
    inputs = inputs.to(job.device, non_blocking=True)
    labels = labels.to(job.device, non_blocking=True)
    with forward_context(job.doses, job.device):
        loss = cross_entropy(job.model(inputs), labels)
    loss.backward()
    job.optimizer.step()
    job.optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def run(job: Job, *, skip: int) -> Result:
    """Runs all steps; all but the first `skip` are summed up."""
    batches = iter(job.loader)
    loss = torch.tensor(float("nan"))
    for _ in range(job.doses.steps):
        with timed_step(job.clock):
            loss = train_step(job, batches)
    steps_ns = job.clock.durations_ns()[skip:]
    return Result(final_loss=float(loss.item()), times=summarise(steps_ns, batch=job.doses.batch), steps_ns=steps_ns)


def as_json(result: Result, *, regime: str, device: torch.device, doses: Doses) -> str:
    """Gives the result and its doses as one line of JSON; times in ms."""
    times = result.times
    row = {
        "regime": regime,
        "device": device.type,
        "torch": torch.__version__,
        **asdict(doses),
        "final_loss": result.final_loss,
        "steps_timed": times.n_steps,
        "step_mean_ms": times.mean_ns / 1e6,
        "step_p50_ms": times.p50_ns / 1e6,
        "step_p95_ms": times.p95_ns / 1e6,
        "samples_per_s": times.samples_per_s,
        "step_ms": [duration_ns / 1e6 for duration_ns in result.steps_ns],
    }
    return json.dumps(row)


def as_text(result: Result, *, regime: str, device: torch.device) -> str:
    """Gives the result as a line for people."""
    times = result.times
    return (
        f"{regime} on {device.type}: step mean {times.mean_ns / 1e6:.2f} ms, p50 {times.p50_ns / 1e6:.2f},"
        f" p95 {times.p95_ns / 1e6:.2f} (n={times.n_steps}), {times.samples_per_s:,.0f} samples/s,"
        f" final loss {result.final_loss:.6f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and prints one result; gives the exit code."""
    parser = build_parser()
    args = parser.parse_args(arguments)
    device = resolve_device(parser, args.device)
    doses = resolve(parser, args, device.type)
    if device.type == "cpu" and doses.num_workers == 0:
        warm_heap(args.heap_mib * 2**20)  # not with workers: a fork would make its pages fault again
    job = build_job(args.regime, doses, device)
    result = run(job, skip=args.skip)
    if args.json:
        print(as_json(result, regime=args.regime, device=device, doses=doses))
    else:
        print(as_text(result, regime=args.regime, device=device))
    return 0


if __name__ == "__main__":
    sys.exit(main())
