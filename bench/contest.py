"""The contenders on one trace, run in turns."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.measure import REPO_ROOT, Usage, measure, say

PROFKIT = "profkit triage"
PROFKIT_J1 = "profkit triage -j 1"
PROFKIT_TEXT = "profkit, plain text"
"""On the same trace, uncompressed."""
PROFKIT_PLAIN = "profkit, Python"
"""Without the compiled scanner; the same as `PROFKIT` where none is in use (`profkit doctor`)."""
FLOOR = "floor (1 core)"
GUNZIP = "gunzip (1 core)"
HTA = "HTA"

Runs = dict[str, list[Usage]]
"""The runs that ended well, by contender; none for one that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A command to measure; `max_rounds` bounds how often a slow one runs."""

    name: str
    command: tuple[str | Path, ...]
    max_rounds: int | None = None


def contenders(trace: Path, hta_folder: Path | None, hta_rounds: int | None = None) -> list[Contender]:
    """Give profkit, the floors, profkit on one thread and without its scanner; with a folder of only `trace`, HTA."""
    whole = profkit(PROFKIT, trace)
    chosen = [
        whole,
        Contender(name=FLOOR, command=(sys.executable, "-m", "bench.floor", trace)),
        Contender(name=GUNZIP, command=(sys.executable, "-m", "bench.floor", "--gunzip", trace)),
        profkit(PROFKIT_J1, trace, "-j", "1"),
        replace(whole, name=PROFKIT_PLAIN, command=("env", "PROFKIT_NATIVE=0", *whole.command)),
    ]
    if hta_folder is not None:
        command = (sys.executable, "-m", "bench.hta_calls", hta_folder)
        chosen.append(Contender(name=HTA, command=command, max_rounds=hta_rounds))
    return chosen


def profkit(name: str, trace: Path, *options: str) -> Contender:
    """Give a whole triage with its report as JSON."""
    return Contender(name=name, command=(sys.executable, "-m", "profkit", "triage", trace, "-f", "json", *options))


STARTS: Final = tuple(
    Contender(name=code, command=(sys.executable, "-c", code))
    for code in ("pass", "import numpy", "import click, msgspec, numpy", "import profkit.cli")
)
"""What no triage can be faster than: Python, and the packages that it needs."""


@contextmanager
def folder_with_only(trace: Path) -> Iterator[Path]:
    """Give a temporary folder in which a link to `trace` is the only file: what HTA wants."""
    with tempfile.TemporaryDirectory(prefix="profkit-bench-") as folder:
        (Path(folder) / trace.name).symlink_to(trace.resolve())
        yield Path(folder)


def run_in_turns(chosen: Sequence[Contender], n_rounds: int) -> Runs:
    """Give the runs of every contender, each once in each round: a slow minute of the machine falls on all.

    In each round they come in another order, for what ran just before counts too: after a minute on one core the other
    one may be asleep.

    One that fails is told in one line and left out of the later rounds. Progress goes to stderr. profkit is compiled
    before, as pip does with what it installs, HTA included; containers often set PYTHONDONTWRITEBYTECODE.
    """
    subprocess.run([sys.executable, "-m", "compileall", "-q", REPO_ROOT / "profkit", REPO_ROOT / "bench"], check=True)
    runs: Runs = {contender.name: [] for contender in chosen}
    failed: set[str] = set()
    for index in range(n_rounds):
        for contender in random.Random(index).sample(chosen, len(chosen)):  # noqa: S311 - no secret
            if contender.name in failed or index >= (contender.max_rounds or n_rounds):
                continue
            say(f"round {index + 1} of {n_rounds}: {contender.name} ...")
            usage = measure(contender.command)
            if usage.exit_code == 0:
                runs[contender.name].append(usage)
            else:
                failed.add(contender.name)
                say(f"{contender.name} failed, exit code {usage.exit_code}: {usage.last_error}")
    return runs
