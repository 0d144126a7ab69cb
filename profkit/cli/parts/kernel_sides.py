"""`profkit compare` where both sides are Nsight Compute's profiles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from profkit.cli.shared.output import Showing, show
from profkit.cli.shared.percent import Loss
from profkit.cli.shared.say import say
from profkit.errors import TraceNotFoundError, UsageError
from profkit.units import format_change

_TWO_SIDES: Final = "profkit compare before.ncu-rep after.ncu-rep"


def are_profiles(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether both sides are ncu's; raises UsageError where some of it is and the rest is not."""
    found = [_is_profile(path) for path in (*before, *after)]
    if not any(found):
        return False
    if not all(found):
        raise UsageError("an ncu report and a trace cannot be compared", hint=f"{_TWO_SIDES}; or two traces")
    if not after:
        raise UsageError(f"{before[0]} is one side", hint=f"name the other one as well: {_TWO_SIDES}")
    return True


def _is_profile(path: str) -> bool:
    """A report or page of ncu, or a folder that holds those and no trace."""
    from profkit.ingest.discover import find_sources
    from profkit.ingest.ncu.reader import find_ncu_sources
    from profkit.ingest.ncu.sniff import is_ncu

    if path == "-" or not Path(path).is_dir():
        return path != "-" and Path(path).is_file() and is_ncu(Path(path), path)
    try:
        find_sources([path])
    except TraceNotFoundError:
        pass
    else:
        return False
    try:
        return any(is_ncu(Path(source), source) for source in find_ncu_sources([path]))
    except TraceNotFoundError:
        return False


def compare_profiles(
    before: Sequence[str], after: Sequence[str], how: Showing, *, metric: str | None, limit: Loss | None
) -> int:
    """Print what changed in each kernel; 1 where one is slower than the limit allows."""
    from profkit.compare.kernels import compare_kernels
    from profkit.ingest.ncu.reader import find_ncu_sources, read_profiles

    if metric is not None:
        raise UsageError("--metric names a column, but these are ncu reports", hint="leave it out")
    sources = find_ncu_sources(before), find_ncu_sources(after)
    read = [[read_profiles(source) for source in side] for side in sources]
    comparison = compare_kernels(
        *([profile for one in side for profile in one.profiles] for side in read),
        sources=sources,
        warnings=[warning for side in read for one in side for warning in one.warnings],
    )
    show("compare_kernels", comparison, how, source=before[0])
    if limit is None:
        return 0
    changes = {one.function: one.change for one in comparison.kernels if one.answer == "slower" and one.change}
    worst = max(changes, key=lambda name: changes[name], default="")
    is_beyond = bool(worst) and changes[worst] > limit.fraction
    said = f"{worst} {format_change(changes[worst])}" if worst else "no kernel is slower"
    say(f"{limit.asked}: {said}; exit code {int(is_beyond)}")
    return int(is_beyond)
