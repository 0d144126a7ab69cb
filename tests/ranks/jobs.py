"""Small simulated jobs as folders of traces: what `bench.simulated` writes large, in a tenth of a second."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

from bench.simulated import Job, write_all


def job_of(folder: Path, *, n_ranks: int = 4, late_us: dict[int, int] | None = None, **more) -> Path:
    """Write a job, of 40 kernels a step where nothing else is said; give its folder."""
    write_all(Job(n_ranks=n_ranks, late_us=late_us or {}, **{"n_kernels": 40, **more}), folder)
    return folder


def edited(path: Path, edit: Callable[[dict], None]) -> None:
    """Change a trace's document."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    edit(document)
    path.write_bytes(gzip.compress(json.dumps(document).encode(), compresslevel=1))


def rank_file(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank:05d}.json.gz"
