"""Trains a tiny transformer under DDP on sequences of unequal length, batched in one of five ways."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from workloads.options import amount, count, count_or_zero
from workloads.rank_steps import RankSteps, Stopwatch, figures, of_all_ranks, rank_table
from workloads.sequences.model import Classifier, Sequences, Sizes, packed, padded
from workloads.sequences.plans import STRATEGIES, Lengths, Load, Plan, Shape, load_of, planned
from workloads.told import told
from workloads.world import World, joined_world

EPILOG: Final = """\
strategies:
  uniform       --batch sequences, all of --uniform-length: the healthy reference
  fixed_count   --batch sequences as they come, padded to the longest: padding, and unequal work
  bucketing     --batch sequences of like length
  token_budget  sequences of like length, as many as --max-tokens allow with their padding
  packing       sequences end to end in rows of --max-tokens, each attending to itself: no padding

examples:
  torchrun --nproc-per-node 4 -m workloads.token_skew --strategy fixed_count
  profkit capture --steps 10 -- torchrun --nproc-per-node 4 -m workloads.token_skew --strategy packing
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doses:
    """Everything that decides a run, besides its strategy. Lengths are tokens, the rest are counts."""

    batch: int = 8
    max_tokens: int = 1280
    uniform_length: int = 128
    min_length: int = 64
    max_length: int = 256
    outlier_fraction: float = 0.08
    hidden: int = 48
    heads: int = 4
    layers: int = 1
    bucket_mb: float = 0.125
    vocabulary: int = 8192
    classes: int = 16
    samples: int = 2048
    steps: int = 32
    skip: int = 2
    threads: int = 1
    seed: int = 0


_MAY_BE_ZERO: Final = ("skip", "threads", "seed")


class Texts(Dataset[tuple[Tensor, int]]):
    """Sequences of random words and their classes, ready in memory."""

    def __init__(self, lengths: Sequence[int], doses: Doses) -> None:
        generator = torch.Generator().manual_seed(doses.seed)
        words = torch.randint(doses.vocabulary, (sum(lengths),), generator=generator)
        self.sequences = words.split(list(lengths))
        self.labels: list[int] = torch.randint(doses.classes, (len(lengths),), generator=generator).tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.sequences[index], self.labels[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a training loop works with; `loads` are those of all ranks, `[step][rank]`."""

    doses: Doses
    world: World
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loader: DataLoader[Sequences]
    loads: list[list[Load]]


def lengths_of(strategy: str, doses: Doses) -> list[int]:
    """Gives the lengths of all sequences in tokens."""
    if strategy == "uniform":
        return [doses.uniform_length] * doses.samples
    kind = Lengths(least=doses.min_length, most=doses.max_length, outlier_fraction=doses.outlier_fraction)
    return kind.drawn(doses.samples, seed=doses.seed)


def build_job(strategy: str, doses: Doses, world: World) -> Job:
    """Gives a job whose weights and data follow from the seed; sets the intra-op threads of torch."""
    torch.manual_seed(doses.seed)
    if doses.threads > 0:
        torch.set_num_threads(doses.threads)
    lengths = lengths_of(strategy, doses)
    shape = Shape(n_ranks=world.n_ranks, n_steps=doses.steps, batch=doses.batch, max_tokens=doses.max_tokens)
    plan: Plan = planned(strategy, lengths, shape, seed=doses.seed)
    is_packed = strategy == "packing"
    model = Classifier(
        Sizes(
            hidden=doses.hidden,
            heads=doses.heads,
            layers=doses.layers,
            vocabulary=doses.vocabulary,
            classes=doses.classes,
            most=max(doses.max_length, doses.uniform_length),
        )
    )
    together = packed if is_packed else padded
    return Job(
        doses=doses,
        world=world,
        model=DistributedDataParallel(model, bucket_cap_mb=doses.bucket_mb, gradient_as_bucket_view=True),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True),
        loader=DataLoader(
            Texts(lengths, doses),
            batch_sampler=[ranks[world.rank] for ranks in plan],
            collate_fn=lambda samples: together(*zip(*samples, strict=True)),
        ),
        loads=[[load_of(batch, lengths, is_packed=is_packed) for batch in ranks] for ranks in plan],
    )


def train_step(job: Job, batch: Sequences, *, n_samples: int) -> Tensor:
    """Does one step and gives this rank's part of the loss.

    DDP averages gradients over the ranks: with the factor each of the `n_samples` of all ranks weighs the same, however
    many of them a rank has.
    """
    loss = cross_entropy(job.model(batch), batch.labels, reduction="sum") / n_samples
    (loss * job.world.n_ranks).backward()
    job.optimizer.step()
    job.optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def run(job: Job) -> tuple[list[RankSteps], float]:
    """Runs all steps; gives the steady ones of every rank, and the last loss over all samples of its step."""
    watch = Stopwatch()
    batches: Iterator[Sequences] = iter(job.loader)
    loss = torch.tensor(float("nan"))
    for loads in job.loads:
        watch.begin()
        batch = next(batches)
        watch.fetched()
        loss = train_step(job, batch, n_samples=sum(load.samples for load in loads))
        watch.end()
        mine = loads[job.world.rank]
        told(tokens=mine.tokens, padded_tokens=mine.padded_tokens, samples=mine.samples)
    return of_all_ranks(job.world, watch, skip=job.doses.skip), job.world.summed(float(loss))


def row_of(ranks: Sequence[RankSteps], job: Job, loss: float, *, strategy: str) -> dict[str, Any]:
    """Gives the run as plain values: doses, figures of all ranks, and what the steady steps worked on."""
    loads = job.loads[job.doses.skip :]
    of_ranks = figures(ranks)
    spent_s = of_ranks["slowest_step_ms"] / 1e3 * len(loads)
    tokens, padded_tokens = (
        sum(getattr(load, name) for step in loads for load in step) for name in ("tokens", "padded_tokens")
    )
    for one in of_ranks["ranks"]:
        mine = [step[one["rank"]] for step in loads]
        one |= {field.name: [getattr(load, field.name) for load in mine] for field in fields(Load)}
    return {
        "strategy": strategy,
        "world_size": len(ranks),
        "torch": torch.__version__,
        **asdict(job.doses),
        "useful_tokens_per_s": tokens / spent_s,
        "padded_tokens_per_s": padded_tokens / spent_s,
        "padding_fraction": 1 - tokens / padded_tokens,
        "token_spread": _spread(loads, "tokens"),
        "padded_token_spread": _spread(loads, "padded_tokens"),
        "final_loss": loss,
        **of_ranks,
    }


def _spread(loads: Sequence[Sequence[Load]], name: str) -> float:
    """Gives the mean over steps of the largest less the smallest load of all ranks."""
    values = [[getattr(load, name) for load in step] for step in loads]
    return statistics.fmean(max(step) - min(step) for step in values)


def read_doses(arguments: Sequence[str] | None = None) -> tuple[argparse.Namespace, Doses]:
    """Gives the command line as it was parsed, and its doses."""
    parser = argparse.ArgumentParser(
        prog="python -m workloads.token_skew",
        description="Train a tiny transformer under DDP on gloo on sequences of unequal length; time all ranks.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--strategy", choices=STRATEGIES, default="uniform", help="how batches are made (uniform)")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON line")
    group = parser.add_argument_group("doses")
    for field in fields(Doses):
        default = field.default
        read = amount if isinstance(default, float) else count_or_zero if field.name in _MAY_BE_ZERO else count
        group.add_argument(f"--{field.name.replace('_', '-')}", type=read, default=default, help=f"({default:g})")
    args = parser.parse_args(arguments)
    doses = Doses(**{field.name: getattr(args, field.name) for field in fields(Doses)})
    if doses.steps <= doses.skip:
        parser.error(f"--steps {doses.steps} leaves no step to time after the first {doses.skip}")
    if not doses.min_length <= doses.max_length <= doses.max_tokens:
        parser.error("--min-length must not exceed --max-length, nor that --max-tokens")
    return args, doses


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; rank 0 prints the result. Gives the exit code."""
    args, doses = read_doses(arguments)
    with joined_world("cpu", backend="gloo") as world:
        job = build_job(args.strategy, doses, world)
        ranks, loss = run(job)
        if world.rank == 0:
            row = row_of(ranks, job, loss, strategy=args.strategy)
            seen = f"{row['slowest_step_ms']:.2f} ms on rank {row['slowest_rank']}"
            seen += f", {row['useful_tokens_per_s']:,.0f} tokens/s, padding {100 * row['padding_fraction']:.1f} %"
            text = f"{args.strategy}, {len(ranks)} ranks: {seen}, final loss {loss:.6f}\n{rank_table(row)}"
            print(json.dumps(row) if args.json else text, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
