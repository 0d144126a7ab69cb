"""One program of the accuracy benchmark: a training script with a dose of one pathology, as profkit run is put before.

    python -m analyses.accuracy.program --family cnn --pathology loader_serial --dose medium --seed 1 --steps 60
    python -m analyses.accuracy.program --family cnn --pathology loader_serial --alternate 20 --steps 240 --times t.json

With `--alternate` the pathology is turned on and off between blocks of so many steps: what its removal gains follows
from the times that `--times` writes (`analyses.accuracy.label`).
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Final

if "--alternate" in sys.argv and "ddp" not in sys.argv:  # a label run needs no compiler, whose import takes two seconds
    import workloads.no_compiler  # noqa: F401

import torch

from analyses.accuracy.programs.loop import Plan, loader, train
from analyses.accuracy.programs.registry import FAMILIES, PATHOLOGIES, SHARES
from analyses.accuracy.programs.switch import Switch
from workloads.world import joined_world

PREFETCHED: Final = 2
"""Batches that a worker has ready: the default of the DataLoader."""


def arguments() -> argparse.Namespace:
    """Gives the command line."""
    parser = argparse.ArgumentParser(prog="python -m analyses.accuracy.program", description=__doc__.splitlines()[0])
    parser.add_argument("--family", choices=FAMILIES, default="mlp")
    parser.add_argument("--pathology", choices=PATHOLOGIES, default="plain")
    parser.add_argument("--dose", choices=SHARES, default="medium")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--alternate", type=int, default=0, metavar="BLOCK", help="steps of a block (never)")
    parser.add_argument("--times", type=Path, help="write the times of steps here, as JSON")
    return parser.parse_args()


def main() -> None:
    """Trains."""
    chosen = arguments()
    torch.manual_seed(chosen.seed)
    torch.set_num_threads(1)
    kind = PATHOLOGIES[chosen.pathology]
    n_steps = chosen.steps + chosen.alternate
    plan = Plan(n_steps=n_steps, block=chosen.alternate, seed=chosen.seed, period=kind.block)
    family = FAMILIES[chosen.family](chosen.seed)
    with joined_world("cpu", backend="gloo") if family.n_ranks > 1 else nullcontext() as world:
        rank = world.rank if world else 0
        pathology = kind(SHARES[chosen.dose], family.step_ms / 1e3, Switch(), rank=rank)
        with pathology.around():
            model = family.spread(pathology.dressed(family.model()))
            pathology.spread(model)
            ends_ns = train(family, model, loader(family, pathology, plan.batches(family)), pathology, plan)
    if chosen.times and rank == 0:
        n_skipped = (PREFETCHED + 1) * pathology.n_workers + 2
        written = {"ends_ns": ends_ns[chosen.alternate :], "block": chosen.alternate, "skipped": n_skipped}
        chosen.times.write_text(json.dumps(written), encoding="utf-8")


if __name__ == "__main__":
    main()
