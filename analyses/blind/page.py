"""The part of docs/accuracy.md on first looks: how profkit did on programs that nobody here had seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from analyses.blind import foreign, score
from analyses.blind.rounds import Round

_LEAST: Final = f"{100 * score.HEALTHY_BELOW:.0f} %"
_SLACK: Final = f"{100 * score.SLACK:.0f} points"
_HOW: Final = f"""\
## First looks

A writer who has not read a rule of profkit invents programs with one fault each and a healthy twin of each. Both twins
are timed in turns, without a profiler, at least once before profkit is asked. profkit is asked once: `profkit run`, as
a user would. A reader who wrote no rule puts the report beside the writer's truth:

- **right**: the class and the cause that the writer wrote down, first;
- **partly**: the class, with the cause or the line wrong, or the cause in second place;
- **open**: the report says that it cannot tell, and what would; **wrong**: all else.

Of a decoy, whose fault costs less than {_LEAST}, right is what does not blame it. A *false alarm* is a report of a
healthy twin that blames what would gain less than {_LEAST}. "At most" counts as held down to {_SLACK} below the
measured gain; "about" is near within a factor of {score.NEAR}. The last column counts the runs, of both sides, whose
exit code was the script's own, and whose loop took at most 2 s and 3 % longer beneath `profkit run`. After that a
program is known, and joins what is tried for regression: its later scores are no part of this table. Each row is asked
at its own commit; what its programs showed was mended after it.
"""


def part(of: Sequence[Round]) -> str:
    """All rounds whose reports were read, then the programs of each, as Markdown."""
    read = [one for one in of if one.scores]
    lines = [_HOW, score.table(score.scored(one) for one in read)]
    for one in read:
        lines += ["", f"### Round {one.number}: {len(one.truths)} programs", "", one.note, "", score.programs(one)]
    return "\n".join([*lines, "", foreign.part(foreign.scripts())])
