"""The registry of public captures and before/after pairs: what each is, and what independent readers found in it.

Labels are kept here, files never are: a capture is repository @ commit : path, and a file is told by its digest.
"""

from __future__ import annotations

import gzip
import hashlib
import tomllib
from collections.abc import Sequence
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec

HERE: Final = Path(__file__).resolve().parent
REGISTRY: Final = HERE / "registry"


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of a kernel profile, with what NVIDIA's rules and a CUDA expert say of it first."""

    id: int
    kernel: str
    duration_us: float
    nvidia_rule: str
    nvidia_percent: float
    """-1 where the rule estimates nothing."""
    nvidia_kind: str
    """"global", "local" or "none"."""
    first_advice: str
    follow: str
    """Whether the expert follows NVIDIA's largest estimate: "yes", "partly", "no"."""
    why: str = ""


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """One public capture and its truth, written down before profkit was asked."""

    name: str
    repository: str
    commit: str
    paths: tuple[str, ...]
    kind: str
    """"kineto", "nsys" or "ncu"."""
    files: tuple[str, ...]
    """As they lie below the folder that is judged; several are ranks of one job."""
    sha256: tuple[str, ...]
    """Of what they hold, unpacked: how a file was packed tells nothing."""
    device: str
    vendor: str
    tool: str
    licence: str
    work: str
    """"training", "inference", "microbenchmark" or "other"."""
    ranks: int
    read_by: tuple[str, ...]
    read_on: date
    verdict: tuple[str, ...] = ()
    """Each answer that an expert calls right."""
    partly: tuple[str, ...] = ()
    """Neighbours that an expert calls half right."""
    open: bool = False
    """Whether an honest expert says that the capture cannot tell."""
    causes: tuple[str, ...] = ()
    """Findings that name the cause, the largest first; `other: ...` where there is none."""
    launches: tuple[Launch, ...] = ()
    truth: str = ""
    source: str = ""
    sure: str = ""

    def found(self, folder: Path) -> tuple[Path, ...]:
        """Its files below a folder; () where one is missing or another than was read."""
        paths = tuple(folder / name for name in self.files)
        if not all(path.is_file() for path in paths):
            return ()
        same = all(_digest(path) == told for path, told in zip(paths, self.sha256, strict=True))
        return paths if same else ()


class Alternative(msgspec.Struct, frozen=True):
    """A finding that names another change, which would have saved this share."""

    id: str
    saving: float


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two captures of a job, before and after a change, and what the change saved."""

    name: str
    before: str
    after: str
    change: str
    change_kind: str
    saving: float
    """Share (0-1) of the step, or of equal work, that went: by the readers' own sweep of the captures."""
    saving_of: str = ""
    measured_saving: float = float("nan")
    """The same by the authors' times without a profiler, NaN where they say none."""
    measured_before: float = float("nan")
    measured_after: float = float("nan")
    unit: str = ""
    counts_for_advice: bool = True
    """Whether the change gained 3 % or more, so that it should have been advised."""
    causes: tuple[str, ...] = ()
    """Findings that name the change."""
    alternatives: tuple[Alternative, ...] = ()
    compare_right: str = ""
    equal_work: bool = True
    known_trap: str = ""
    read_by: tuple[str, ...] = ()
    read_on: date = date(2026, 11, 24)
    source: str = ""
    sure: str = ""


class Batch(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A file of the registry: captures that were read together, and looked at together for the first time."""

    name: str
    captures: tuple[Capture, ...]
    pairs: tuple[Pair, ...]

    @cached_property
    def by_name(self) -> dict[str, Capture]:
        """The captures by name."""
        return {capture.name: capture for capture in self.captures}


class _File(msgspec.Struct, frozen=True):
    capture: tuple[Capture, ...] = ()
    pair: tuple[Pair, ...] = ()


def read_batch(path: Path) -> Batch:
    """A file of the registry; raises ValueError where it is none."""
    read = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File, strict=False)
    return Batch(name=path.stem, captures=read.capture, pairs=read.pair)


def read_registry(folder: Path = REGISTRY) -> list[Batch]:
    """All files, by name."""
    return [read_batch(path) for path in sorted(folder.glob("*.toml"))]


def names_twice(batches: Sequence[Batch]) -> list[str]:
    """Names that stand for several captures or pairs."""
    seen: set[str] = set()
    twice = []
    for batch in batches:
        for one in (*batch.captures, *(f"pair {pair.name}" for pair in batch.pairs)):
            name = one if isinstance(one, str) else one.name
            twice += [name] if name in seen else []
            seen.add(name)
    return twice


def _digest(path: Path) -> str:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
