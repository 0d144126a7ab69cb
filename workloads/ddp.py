"""Trains an MLP under DDP, healthy or with one fault of known dose; profiling is left to `profkit capture`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

import torch
from torch import Tensor, distributed, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from workloads.data import Batch, keep_batch
from workloads.options import amount, count, count_or_zero
from workloads.rank_steps import RankSteps, Stopwatch, figures, of_all_ranks, rank_table
from workloads.world import World, joined_world

EPILOG: Final = """\
modes: each is baseline with one dose, which a flag changes; a dose of 0 is the healthy twin
  baseline    nothing else
  straggler   --slow-rank sleeps --fetch-sleep-ms (40) before it fetches each batch: slow storage on one host
  comm        an all-reduce of --extra-mb (128) more per step, beside that of the gradients
  barrier     rank 0 works --rank0-ms (20) alone after every step, then all meet at a barrier

examples:
  torchrun --nproc-per-node 4 -m workloads.ddp --mode straggler
  profkit capture --steps 10 -- torchrun --nproc-per-node 4 -m workloads.ddp --mode comm
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doses:
    """What a run does on each rank, besides its mode; 0 leaves a fault out.

    Sizes are counts of elements, `extra_mb` is 1e6 bytes of fp32, `barrier_every` a count of steps.
    """

    batch: int = 128
    features: int = 1024
    hidden: int = 1024
    classes: int = 1000
    samples: int = 4096
    steps: int = 32
    skip: int = 2
    threads: int = 1
    seed: int = 0
    fetch_sleep_ms: float = 0.0
    slow_rank: int = 0
    extra_mb: float = 0.0
    rank0_ms: float = 0.0
    barrier_every: int = 0


MODES: Final[dict[str, Doses]] = {
    "baseline": Doses(),
    "straggler": Doses(fetch_sleep_ms=40.0),
    "comm": Doses(extra_mb=128.0),
    "barrier": Doses(rank0_ms=20.0, barrier_every=1),
}
_POSITIVE: Final = ("batch", "features", "hidden", "classes", "samples", "steps")


class Shard(Dataset[Batch]):
    """As many samples as a run asks for, drawn from those held in memory; a fetch may cost a sleep (seconds)."""

    def __init__(self, doses: Doses, *, n_samples: int, sleep_s: float) -> None:
        generator = torch.Generator().manual_seed(doses.seed)
        self.inputs = torch.randn(doses.samples, doses.features, generator=generator)
        self.labels = torch.randint(doses.classes, (doses.samples,), generator=generator)
        self.n_samples = n_samples
        self.sleep_s = sleep_s

    def __len__(self) -> int:
        return self.n_samples

    def __getitems__(self, indices: list[int]) -> Batch:
        """Gives the batch of these samples at once, after the sleep."""
        if self.sleep_s > 0:
            time.sleep(self.sleep_s)
        rows = torch.tensor(indices) % len(self.labels)
        return self.inputs[rows], self.labels[rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a training loop works with."""

    doses: Doses
    world: World
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loader: DataLoader[Batch]
    extra: Tensor | None
    """What the additional all-reduce sends; None without one."""


def build_job(doses: Doses, world: World) -> Job:
    """Gives a job whose weights and data follow from the seed; sets the intra-op threads of torch."""
    torch.manual_seed(doses.seed)
    if doses.threads > 0:
        torch.set_num_threads(doses.threads)
    model = nn.Sequential(
        nn.Linear(doses.features, doses.hidden),
        nn.ReLU(),
        nn.Linear(doses.hidden, doses.hidden),
        nn.ReLU(),
        nn.Linear(doses.hidden, doses.classes),
    )
    is_slow = world.rank == doses.slow_rank
    dataset = Shard(
        doses,
        n_samples=doses.steps * doses.batch * world.n_ranks,
        sleep_s=doses.fetch_sleep_ms / 1e3 if is_slow else 0.0,
    )
    sampler: DistributedSampler[Batch] = DistributedSampler(
        dataset, num_replicas=world.n_ranks, rank=world.rank, seed=doses.seed
    )
    n_extra = round(doses.extra_mb * 1e6 / 4)
    return Job(
        doses=doses,
        world=world,
        model=DistributedDataParallel(model),
        optimizer=torch.optim.AdamW(model.parameters(), fused=True),
        loader=DataLoader(dataset, batch_size=doses.batch, sampler=sampler, collate_fn=keep_batch),
        extra=torch.zeros(n_extra) if n_extra else None,
    )


def train_step(job: Job, batch: Batch, *, number: int) -> Tensor:
    """Does one step on a batch, faults included, and gives the loss."""
    doses = job.doses
    inputs, labels = batch
    loss = cross_entropy(job.model(inputs), labels)
    loss.backward()
    if job.extra is not None:
        distributed.all_reduce(job.extra)
    job.optimizer.step()
    job.optimizer.zero_grad(set_to_none=True)
    if doses.barrier_every and (number + 1) % doses.barrier_every == 0:
        if job.world.rank == 0 and doses.rank0_ms > 0:
            time.sleep(doses.rank0_ms / 1e3)  # a checkpoint, say: it waits for storage, not for a core
        distributed.barrier()
    return loss.detach()


def run(job: Job) -> tuple[list[RankSteps], float]:
    """Runs all steps; gives the steady ones of every rank, and the last loss, a mean over the ranks."""
    watch = Stopwatch()
    batches: Iterator[Batch] = iter(job.loader)
    loss = torch.tensor(float("nan"))
    for number in range(job.doses.steps):
        watch.begin()
        batch = next(batches)
        watch.fetched()
        loss = train_step(job, batch, number=number)
        watch.end()
    ranks = of_all_ranks(job.world, watch, skip=job.doses.skip)
    return ranks, job.world.summed(float(loss)) / job.world.n_ranks


def row_of(ranks: Sequence[RankSteps], loss: float, *, mode: str, doses: Doses) -> dict[str, Any]:
    """Gives the run as plain values: doses, figures of all ranks, throughput at the slowest rank's pace."""
    of_ranks = figures(ranks)
    global_batch = doses.batch * len(ranks)
    return {
        "mode": mode,
        "world_size": len(ranks),
        "torch": torch.__version__,
        **asdict(doses),
        "global_batch": global_batch,
        "samples_per_s": global_batch / of_ranks["slowest_step_ms"] * 1e3,
        "final_loss": loss,
        **of_ranks,
    }


def read_doses(arguments: Sequence[str] | None = None) -> tuple[argparse.Namespace, Doses]:
    """Gives the command line as it was parsed, and the doses of its mode with those of its flags over them."""
    parser = argparse.ArgumentParser(
        prog="python -m workloads.ddp",
        description="Train an MLP under DDP on gloo, healthy or with one fault, and time each rank's steps.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mode", choices=MODES, default="baseline", help="which fault the run has")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON line")
    group = parser.add_argument_group("doses", "defaults by mode")
    for field in fields(Doses):
        default = field.default
        read = amount if isinstance(default, float) else count if field.name in _POSITIVE else count_or_zero
        group.add_argument(f"--{field.name.replace('_', '-')}", type=read, help=f"({default:g} in baseline)")
    args = parser.parse_args(arguments)
    given = {field.name: getattr(args, field.name) for field in fields(Doses)}
    doses = replace(MODES[args.mode], **{name: value for name, value in given.items() if value is not None})
    if doses.steps <= doses.skip:
        parser.error(f"--steps {doses.steps} leaves no step to time after the first {doses.skip}")
    return args, doses


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; rank 0 prints the result. Gives the exit code."""
    args, doses = read_doses(arguments)
    with joined_world("cpu", backend="gloo") as world:
        ranks, loss = run(build_job(doses, world))
        if world.rank == 0:
            row = row_of(ranks, loss, mode=args.mode, doses=doses)
            seen = (
                f"{row['slowest_step_ms']:.2f} ms on rank {row['slowest_rank']}, {row['samples_per_s']:,.0f} samples/s"
            )
            text = f"{args.mode}, {len(ranks)} ranks: {seen}, final loss {loss:.6f}\n{rank_table(row)}"
            print(json.dumps(row) if args.json else text, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
