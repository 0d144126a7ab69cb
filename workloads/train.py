"""Trains a small classifier in one of four regimes; times its steps, profiles a window of them on request."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from workloads.capture import Recorder, Window
from workloads.data import Batch, build_loader
from workloads.heap import warm_heap
from workloads.models import build_model
from workloads.options import build_parser, resolve, resolve_device
from workloads.presets import Doses
from workloads.ranges import Ranges, make_ranges
from workloads.timing import StepClock, StepTimes, make_clock, summarise, timed_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a training loop works with."""

    doses: Doses
    device: torch.device
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loader: DataLoader[Batch]
    ranges: Ranges
    clock: StepClock


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run gives: its last loss and its steady steps in ns, without and with the profiler."""

    final_loss: float
    unprofiled: StepTimes
    unprofiled_ns: list[int]
    profiled: StepTimes | None


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
        ranges=make_ranges(device.type),
        clock=make_clock(device.type),
    )


def forward_context(doses: Doses, device: torch.device) -> AbstractContextManager[object]:
    """Gives the context of the forward pass: autocast to bfloat16 for dtype bf16, else one without effect."""
    context: AbstractContextManager[object] = torch.autocast(
        device.type, dtype=torch.bfloat16, enabled=doses.dtype == "bf16"
    )
    return context


def train_step(job: Job, batches: Iterator[Batch]) -> Tensor:
    """Does one step in its five ranges; gives the loss, still on the device."""
    phase = job.ranges.phase
    with phase("data_loader"):
        inputs, labels = next(batches)
    with phase("h2d"):
        inputs = inputs.to(job.device, non_blocking=True)
        labels = labels.to(job.device, non_blocking=True)
    with phase("forward"), forward_context(job.doses, job.device):
        loss = cross_entropy(job.model(inputs), labels)
    with phase("backward"):
        loss.backward()
    with phase("optimizer"):
        job.optimizer.step()
        job.optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def train(job: Job, on_step_end: Callable[[], None]) -> float:
    """Runs all steps and gives the last loss; `on_step_end` is the last act of every iteration."""
    batches = iter(job.loader)
    loss = torch.tensor(float("nan"))
    for index in range(job.doses.steps):
        with job.ranges.step(index), timed_step(job.clock):
            loss = train_step(job, batches)
        on_step_end()
    return float(loss.item())


def run_plain(job: Job, *, skip: int) -> Result:
    """Runs the job without a profiler; all steps but the first `skip` are timed."""
    final_loss = train(job, lambda: None)
    unprofiled_ns = job.clock.durations_ns()[skip:]
    return Result(
        final_loss=final_loss,
        unprofiled=summarise(unprofiled_ns, batch=job.doses.batch),
        unprofiled_ns=unprofiled_ns,
        profiled=None,
    )


def run_profiled(job: Job, window: Window, *, path: Path, record_shapes: bool) -> Result:
    """Runs the job, records its window to `path`; the steps before the window give the unprofiled times."""
    recorder = Recorder(window, clock=job.clock, device_type=job.device.type, record_shapes=record_shapes)
    with recorder:
        final_loss = train(job, recorder.step)
    recorder.export(path)
    durations_ns = job.clock.durations_ns()
    unprofiled_ns = durations_ns[window.skip : window.wait]
    return Result(
        final_loss=final_loss,
        unprofiled=summarise(unprofiled_ns, batch=job.doses.batch),
        unprofiled_ns=unprofiled_ns,
        profiled=summarise(durations_ns[window.wait + window.warmup : window.n_steps], batch=job.doses.batch),
    )


def as_json(result: Result, *, regime: str, device: torch.device, doses: Doses, trace: Path | None) -> str:
    """Gives the result and its doses as one line of JSON; times in ms, null for what was not measured."""
    times = result.unprofiled
    profiled = result.profiled
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
        "step_ms": [duration_ns / 1e6 for duration_ns in result.unprofiled_ns],
        "profiled_step_mean_ms": None if profiled is None else profiled.mean_ns / 1e6,
        "profiled_step_p50_ms": None if profiled is None else profiled.p50_ns / 1e6,
        "trace": None if trace is None else str(trace),
    }
    return json.dumps(row)


def as_text(result: Result, *, regime: str, device: torch.device, trace: Path | None) -> str:
    """Gives the result as a line for people, and one more line for the trace if there is one."""
    times = result.unprofiled
    line = (
        f"{regime} on {device.type}: step mean {times.mean_ns / 1e6:.2f} ms, p50 {times.p50_ns / 1e6:.2f},"
        f" p95 {times.p95_ns / 1e6:.2f} (n={times.n_steps}), {times.samples_per_s:,.0f} samples/s,"
        f" final loss {result.final_loss:.6f}"
    )
    if trace is None or result.profiled is None:
        return line
    profiled = result.profiled
    return (
        f"{line}\ntrace: {trace}, profiled step mean {profiled.mean_ns / 1e6:.2f} ms,"
        f" p50 {profiled.p50_ns / 1e6:.2f} (n={profiled.n_steps})"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and prints one result; gives the exit code."""
    parser = build_parser()
    args = parser.parse_args(arguments)
    device = resolve_device(parser, args.device)
    doses, window = resolve(parser, args, device.type)
    if args.profile is not None and device.type == "cpu" and doses.num_workers == 0:
        warm_heap(args.heap_mib * 2**20)  # not with workers: a fork would make its pages fault again
    job = build_job(args.regime, doses, device)
    if args.profile is None:
        result = run_plain(job, skip=window.skip)
    else:
        result = run_profiled(job, window, path=args.profile, record_shapes=args.record_shapes)
    if args.json:
        print(as_json(result, regime=args.regime, device=device, doses=doses, trace=args.profile))
    else:
        print(as_text(result, regime=args.regime, device=device, trace=args.profile))
    return 0


if __name__ == "__main__":
    sys.exit(main())
