"""The traces that are measured on: real ones, and larger ones built from them outside the repository."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from isal import igzip

from bench.measure import REPO_ROOT, measure, say
from bench.repeat import with_rank

SHARED_TRACES = REPO_ROOT.parent / "shared" / "data" / "kineto"
"""Real traces beside the repository; may be absent."""
OWN_TRACES = REPO_ROOT / "traces"
SMALL_TRACE_BYTES = 1_000_000
"""The text size of the small trace, on which start-up shows."""
CHUNK_BYTES = 1 << 20


def large_source() -> Path:
    """Give the trace to repeat: the shared one of 53 MB, else the longest of traces/, best with kernels.

    Exits where there is none.
    """
    shared = SHARED_TRACES / "hta-tests" / "df_index_resolver" / "df_index_resolver.json.gz"
    if shared.exists():
        return shared
    choices = sorted(OWN_TRACES.glob("*.json.gz"))
    if not choices:
        raise SystemExit("bench: no trace in traces/ to repeat; name one")
    return max(choices, key=lambda path: (_has_kernels(path), text_bytes(path)))


def small_trace() -> Path | None:
    """Give the real trace whose text is nearest to 1 MB."""
    choices = sorted(OWN_TRACES.glob("*.json.gz"))
    choices += sorted((SHARED_TRACES / "param-et-replay" / "dlrm_kineto").glob("*.json.gz"))
    return min(choices, key=lambda path: abs(text_bytes(path) - SMALL_TRACE_BYTES), default=None)


def text_bytes(trace: Path) -> int:
    """Give the size of the text in a gzip file of one member below 4 GiB: its last four bytes (RFC 1952)."""
    with trace.open("rb") as file:
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(), "little")


def is_fit_for_hta(trace: Path) -> bool:
    """Say whether the rank stands near the beginning and in the spelling that HTA looks for."""
    with trace.open("rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    with igzip.open(trace, "rb") if is_gzip else trace.open("rb") as file:
        head = file.read(CHUNK_BYTES)
    return with_rank(head) == head


def build(source: Path, destination: Path, n_bytes: int | None) -> None:
    """Write `source`, repeated to `n_bytes` of text or only fitted for HTA.

    A process of its own does it, for the reason that `measure` gives.
    """
    say(f"writing {destination.name} from {source.name} ...")
    size = () if n_bytes is None else ("--bytes", str(n_bytes))
    usage = measure((sys.executable, "-m", "bench.repeat", source.resolve(), destination.resolve(), *size))
    if usage.exit_code != 0:
        raise SystemExit(f"bench: {source} could not be repeated: {usage.last_error}")


def _has_kernels(trace: Path) -> bool:
    with igzip.open(trace, "rb") as file:
        return any(b'"cat": "kernel"' in chunk for chunk in iter(partial(file.read, CHUNK_BYTES), b""))
