"""What the first looks of blind rounds are worth, and the tables of them.

python -m analyses.blind.score [ROUND]
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from analyses.accuracy.shares import Share, share_of
from analyses.accuracy.shown.tables import Table, markdown, share_words
from analyses.blind.rounds import FIRST, HEALTHY, SLOW, Found, Look, Round, read_round, rounds

HEALTHY_BELOW: Final = 0.03
"""A dose that gains less is no fault. As in `../accuracy`: runs of the same program differ by as much."""
SLACK: Final = 0.02
"""By how much "at most" may lie below the measured gain: half of what turns of the same twins differ by. Chosen."""
MOST_ADDED_S, MOST_ADDED = 2.0, 0.03
"""What a recording may add to the training loop, s, and as a share of it: the goal that was set, without load."""
NEAR: Final = 1.3
"""The ratio within which "about" is near the measured gain: the goal that was set."""


class RoundScore(msgspec.Struct, frozen=True, kw_only=True):
    """How profkit did at first look in one round, each as so many of so many."""

    number: int
    date: str
    commit: str
    right: Share
    right_or_partly: Share
    open: Share
    wrong: Share
    alarms: Share
    held: Share
    near: Share
    quick: Share
    """Looks, of both sides, that left the exit code alone and added no more to the loop than they may."""


def scored(one: Round) -> RoundScore:
    """The scores of a round whose reports were read; programs that were not asked, or not read, count nowhere."""
    read = [name for name in one.truths if name in one.scores and one.first(name, SLOW)]
    said = Counter(one.scores[name].score for name in read)
    n = len(read)
    alarms = [one.scores[name].alarm for name in read if one.first(name, HEALTHY)]
    ceilings = [found for name in read if (found := _ceiling(one, name)) is not None]
    held = [found.at_most >= gain - SLACK for gain, found in ceilings]
    near = [found.about > 0 and 1 / NEAR <= gain / found.about <= NEAR for gain, found in ceilings]
    looks = [look for look in one.looks if look.look == FIRST]
    return RoundScore(
        number=one.number,
        date=_between(look.date for look in looks),
        commit=_between(look.commit for look in looks),
        right=Share(said["right"], n),
        right_or_partly=Share(said["right"] + said["partly"], n),
        open=Share(said["open"], n),
        wrong=Share(said["wrong"], n),
        alarms=Share(sum(alarms), len(alarms)),
        held=Share(sum(held), len(held)),
        near=Share(sum(near), len(near)),
        quick=share_of([_is_quick(one, look) for look in looks if look.loop_s and look.name in one.timings]),
    )


def _is_quick(one: Round, look: Look) -> bool:
    alone_s = statistics.median(turn.slow_s if look.side == SLOW else turn.healthy_s for turn in one.timings[look.name])
    return look.exit_code == 0 and look.loop_s <= (1 + MOST_ADDED) * alone_s + MOST_ADDED_S


def _ceiling(one: Round, name: str) -> tuple[float, Found] | None:
    """The measured gain and the finding that names the fault; None where there is no fault, or no finding names it."""
    gain, look = one.gain(name), one.first(name, SLOW)
    if gain is None or gain < HEALTHY_BELOW or look is None:
        return None
    found = next((each for each in look.findings if each.id == one.scores[name].finding), None)
    return None if found is None else (gain, found)


def _between(values: Iterable[str]) -> str:
    return " to ".join(dict.fromkeys(values))


def table(of: Iterable[RoundScore]) -> str:
    """A row per round, as Markdown."""
    head = (
        "round",
        "asked",
        "at",
        "right",
        "right or partly",
        "open",
        "wrong",
        "false alarms",
        "at most >= gain",
        "about",
        "2 s + 3 %",
    )
    rows = [
        (
            str(one.number),
            one.date,
            one.commit,
            *map(
                share_words,
                (one.right, one.right_or_partly, one.open, one.wrong, one.alarms, one.held, one.near, one.quick),
            ),
        )
        for one in of
    ]
    return markdown(Table(title="", head=head, rows=tuple(rows)))


def programs(one: Round) -> str:
    """A row per program of a round, as Markdown."""
    head = ("program", "what it is", "fault", "gain", "verdict", "score", "at most", "why")
    rows = []
    for name, truth in one.truths.items():
        gain, look, said = one.gain(name), one.first(name, SLOW), one.scores.get(name)
        found = _ceiling(one, name) if said else None
        rows.append(
            (
                f"`{name}`",
                truth.kind,
                truth.fault,
                "–" if gain is None else f"{100 * gain:.0f} %",
                _verdict(look),
                "not read" if said is None else said.score + (", false alarm on the twin" if said.alarm else ""),
                f"{100 * found[1].at_most:.0f} %" if found else "–",
                said.why if said else "",
            )
        )
    return markdown(Table(title="", head=head, rows=tuple(rows)))


def _verdict(look: Look | None) -> str:
    if look is None:
        return "not asked"
    return look.bottleneck or f"no report, exit {look.exit_code}"


def main() -> None:
    """Prints the rounds, and the programs of one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("round", type=int, nargs="?")
    chosen = parser.parse_args()
    known = rounds() if chosen.round is None else [read_round(chosen.round)]
    print(table(scored(one) for one in known))
    if chosen.round is not None:
        print(programs(known[0]))


if __name__ == "__main__":
    main()
