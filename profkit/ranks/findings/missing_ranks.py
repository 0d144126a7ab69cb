"""What is said where ranks are missing, and waiting for one of them looks like slow communication."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from msgspec.structs import replace

from profkit.model.finding import Finding, NextTool
from profkit.ranks.measure.fleet_measures import Joint
from profkit.shell import line_of, path_word
from profkit.units import format_numbers

_MOST_NAMED: Final = 8


def missing_ranks(joint: Joint) -> str:
    """The ranks of the job whose traces are not here, as "rank 1" or "ranks 1, 5"; "" where all are."""
    here = {summary.rank for summary in joint.summaries}
    size = max(summary.world_size for summary in joint.summaries)
    n_missing = size - len(here)
    if n_missing <= 0:
        return ""
    if n_missing > _MOST_NAMED:
        return f"{n_missing:,} of {size:,} ranks"
    absent = [rank for rank in range(size) if rank not in here]
    return f"rank{'s' if len(absent) > 1 else ''} {format_numbers(absent)}"


def awaiting(finding: Finding, joint: Joint, absent: str) -> Finding:
    """Exposed communication of ranks that may all wait for one whose trace is not here."""
    is_one = absent.startswith("rank ")
    who = f"{absent}, which may be the late one, is missing"
    some = f"{absent} are missing, and one of them may be late"
    return replace(
        finding,
        title=f"collectives take long; {who if is_one else some}",
        fix=f"first bring the trace{'' if is_one else 's'} of {absent}: without {'it' if is_one else 'them'}, waiting and"
        " slow transfer look the same",
        next_tools=(_bring(joint, absent),),
    )


def _bring(joint: Joint, absent: str) -> NextTool:
    folder = str(PurePath(joint.outcomes[0].report.source).parent)
    return NextTool(
        name="profkit triage",
        line=line_of("profkit triage", path_word(folder)),
        purpose=f"bring the trace of {absent} of this recording into the folder, and triage all ranks together",
        look_for="which rank is last in the collectives",
    )
