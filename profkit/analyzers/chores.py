"""Which line of the user's own code takes the time in which nothing trains? By looks at the run, else between operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from msgspec.structs import replace

from profkit.analyzers.base import Analyzer, Scope, scope_of
from profkit.analyzers.tools import py_spy_main
from profkit.findings.chores import CHORE, EVERY_METRIC, HOST_LINE, Chore, chore_of
from profkit.model.arrays import distinct
from profkit.model.code import ACTING, CodePlace, Phase, PlaceShare
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, Skipped
from profkit.model.intervals import Intervals
from profkit.timeline import Facts
from profkit.timeline.code import Rows, shares, training_functions
from profkit.timeline.cpu import WRAPPER_NS, training_threads
from profkit.timeline.scheduled import cored_share
from profkit.timeline.whole_run import Hot, WholeRun, whole_run
from profkit.units import format_fraction, format_ns

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code

_SURE: Final = 0.85
_MANY_LOOKS: Final = 60
"""Looks at a line, from which its share is right within a quarter (two deviations of a count). Chosen."""
_LESS_SURE: Final = 0.7
_MOST_LINES: Final = 40
_LEAST_LEFT: Final = 0.02
"""Of the run beside a chore, from which it tells how long the run is. Chosen: near 0 it tells nothing."""
_ONE_LINE: Final = 0.6
"""Of a function's time, from which its line is named, not the function..."""
_ONE_CHORE: Final = 0.4
"""...and that of a line of which it is known what to do about it. Chosen."""


class Chores(msgspec.Struct, frozen=True, kw_only=True):
    """Lines by the looks at the run, and by the time between recorded operators, ns."""

    scope: Scope
    run: WholeRun | None
    cored: float
    """As of `Launches`: what is a wait for a core, no fix of a line saves."""
    between: tuple[PlaceShare, ...] = ()
    between_ns: int = 0
    whole: tuple[PlaceShare, ...] = ()
    """With the operators at these lines: what a chore calls of them goes with it."""
    training: frozenset[tuple[str, str]] = frozenset()
    """Files and functions that also hold the model, the backward pass or the optimizer."""
    loops: frozenset[CodePlace] = frozenset()
    """Places that hold operators of more than one phase: a trainer's whole loop is one line of the script."""


def measure(facts: Facts) -> Chores | Skipped:
    """Sum up, on a CPU."""
    run, code, cpu = whole_run(facts.trace), facts.code, facts.cpu
    if cpu is None or (code is None and (run is None or not run.lines)):
        return Skipped(
            analyzer="chores",
            reason="no lines of the time between operators are known, or a GPU works beside them",
            how_to_get="profkit run -- python train.py, on a CPU",
        )
    found = Chores(scope=scope_of(facts), run=run, cored=cored_share(facts.trace))
    if code is None:
        return found
    threads = sorted(training_threads(facts.trace))
    counts = np.bincount(facts.trace.ops.thread, minlength=max(threads, default=0) + 1)
    main = sorted(threads, key=lambda thread: -int(counts[thread]))[:1]
    gaps = (cpu.operators | cpu.data | cpu.comm | cpu.compute).gaps(*facts.trace.window_ns)
    unfed = (cpu.data | cpu.comm).gaps(*facts.trace.window_ns)
    # a line of many operators has Python between any two of them: its price is theirs
    long = Intervals(gaps.start_ns[gaps.lengths_ns > WRAPPER_NS], gaps.end_ns[gaps.lengths_ns > WRAPPER_NS])
    return replace(
        found,
        between=shares(code, Rows.of_host(code, main, long), _MOST_LINES),
        between_ns=gaps.total_ns,
        whole=shares(code, Rows.of_host(code, main, unfed), _MOST_LINES),
        training=training_functions(code),
        loops=_loops(code),
    )


def _loops(code: Code) -> frozenset[CodePlace]:
    trains = (code.phase_of_op != Phase.OTHER) & (code.place_of_op >= 0)
    pairs = distinct(code.place_of_op[trains].astype(np.int64) * len(Phase) + code.phase_of_op[trains])
    place, n_phases = np.unique(pairs // len(Phase), return_counts=True)
    return frozenset(code.places[one] for one in place[n_phases > 1].tolist())


def judge(result: Chores) -> tuple[Finding, ...]:
    """`host.chore` of the run, and `host.line` of the recorded steps."""
    hot, named = _of_run(result), _between(result)
    return (
        *(_chore(result, *hot) if hot is not None else ()),
        *(_line(result, named) if named is not None else ()),
    )


def _of_run(result: Chores) -> tuple[Chore, tuple[Hot, ...]] | None:
    """The kind of chore with most of the run, and its lines."""
    found: dict[str, tuple[Chore, list[Hot]]] = {}
    for line in result.run.lines if result.run is not None else ():
        chore = chore_of(line.text, way=line.way)
        if chore is not None and (chore.is_aside or not line.acts):
            found.setdefault(chore.does, (chore, []))[1].append(line)
    chore, lines = max(found.values(), key=lambda one: _share(one[1]), default=(None, []))
    is_seen = sum(line.n_looks for line in lines) >= CHORE.limit("looks") and _share(lines) >= CHORE.limit("run")
    return (chore, tuple(lines)) if chore is not None and is_seen else None


def _share(lines: Iterable[Hot]) -> float:
    return min(sum(line.share for line in lines), 1.0)


def _chore(result: Chores, chore: Chore, lines: tuple[Hot, ...]) -> tuple[Finding, ...]:
    run, scope, first = result.run, result.scope, lines[0]
    assert run is not None  # noqa: S101 - the lines are its own
    share, n_looks = _share(lines), sum(line.n_looks for line in lines)
    often = f"every {first.every} steps, " if first.every > 1 else ""
    # without what only some steps do the step is as recorded, and that comes on top
    step_ns = (
        round((scope.step_ns or run.usual_ns) / max(1 - share, _LEAST_LEFT))
        if first.every > 1
        else scope.step_ns or run.mean_ns
    )
    there = "; ".join(f"{line.place.words} ({format_fraction(line.share)})" for line in lines[:3])
    said = f"{n_looks} looks at the run beside the recorded steps find {format_fraction(share)} of its time at {there}"
    evidence = [Evidence(said, "chores.share", share, "fraction"), *_held(run, first.place)]
    if first.every > 1:
        spent = format_ns(round(first.share * run.mean_ns * first.every))
        said = f"it comes every {first.every} steps, and takes about {spent} each time"
        evidence.append(Evidence(said, EVERY_METRIC, float(first.every), "count"))
    return (
        CHORE.found(
            title=f"{often}{first.place.words} {_does(run, first.place, chore)}{_as_well(lines)}",
            fraction=share,
            confidence=_SURE if n_looks >= _MANY_LOOKS else _LESS_SURE,
            recoverable_ns=round(share * step_ns),
            evidence=tuple(evidence),
            fix=chore.fix,
            next_tools=(py_spy_main(scope.command),),
            one_stretch=share,
        ),
    )


def _as_well(lines: tuple[Hot, ...]) -> str:
    """That other lines do the same, where the share is that of all of them."""
    others = lines[1:]
    if not others:
        return ""
    return (
        f", as do {len(others)} other lines"
        if len(others) > 1
        else f", as does line {others[0].place.line} of {others[0].place.short_file}"
    )


def _does(run: WholeRun | None, place: CodePlace, chore: Chore) -> str:
    held = run.lock_at(place) if run is not None else None
    if held is None:
        return chore.does
    return f"waits for the lock that the thread {held.shown_thread} holds at {held.block.place.name}"


def _held(run: WholeRun | None, place: CodePlace) -> tuple[Evidence, ...]:
    """What the thread does meanwhile that holds what a line waits for."""
    held = run.lock_at(place) if run is not None else None
    if held is None:
        return ()
    said = f"in {format_fraction(held.block.share)} of {held.n_looks} looks at this wait the thread {held.shown_thread} is inside of that block ({held.block.place.text}), most often at {held.inside.place.words}"
    return (Evidence(said, "chores.held_share", held.block.share, "fraction"),)


def _between(result: Chores) -> PlaceShare | None:
    """The line, or the function, that has most of the time between operators and no part in training."""
    scope = result.scope
    chores = [one for one in result.whole if _is_aside(result, one) and _chore_at(one.place) is not None]
    found = [one for one in chores if scope.fraction(one.ns) >= HOST_LINE.limit("known")]
    least_ns = max(HOST_LINE.limit("between") * result.between_ns, HOST_LINE.limit("window") * scope.window_ns)
    functions = (_of_function(result, key, lines) for key, lines in _by_function(result).items())
    most = max([*found, *(one for one in functions if one.ns >= least_ns)], key=lambda one: one.ns, default=None)
    if most is not None and not most.place.line:
        inside = (one for one in found if _key(one) == _key(most) and one.ns >= _ONE_CHORE * most.ns)
        most = max(inside, key=lambda one: one.ns, default=most)
    return _at_lock(result.run, most) if most is not None and result.run is not None else most


def _by_function(result: Chores) -> dict[tuple[str, str], list[PlaceShare]]:
    """What has time between operators and no part in training."""
    found: dict[tuple[str, str], list[PlaceShare]] = {}
    for one in result.between:
        if _is_aside(result, one):
            found.setdefault(_key(one), []).append(one)
    return found


def _chore_at(place: CodePlace) -> Chore | None:
    return chore_of(place.text, place.call)


def _key(one: PlaceShare) -> tuple[str, str]:
    return one.place.file, one.place.function


def _at_lock(run: WholeRun, one: PlaceShare) -> PlaceShare:
    """A function as its line that waits for a lock, where looks at the run find it mostly there: no call tells of a `with`."""
    if one.place.line:
        return one
    inside = [line for line in run.lines if (line.place.file, line.function) == _key(one)]
    held = next((line for line in inside if run.lock_at(line.place) is not None), None)
    is_there = held is not None and held.share >= _ONE_LINE * sum(line.share for line in inside)
    return replace(one, place=held.place) if held is not None and is_there else one


def _is_aside(result: Chores, one: PlaceShare) -> bool:
    """Whether a place is no part of training, nor the loop as a whole, nor what a package's loop calls."""
    place, chore = one.place, _chore_at(one.place)
    if place.inside or place.beside:
        return False
    if chore is not None and chore.is_aside:
        return True
    is_loop = not place.line and (place.function == "<module>" or _key(one) in result.training)
    is_loop |= any((one.file, one.line) == (place.file, place.line) for one in result.loops if place.line)
    return one.phase is Phase.OTHER and not (is_loop or place.single_words & ACTING)


def _of_function(result: Chores, key: tuple[str, str], lines: list[PlaceShare]) -> PlaceShare:
    """The line of a function with most of its time, or all of it where no line has most and nothing trains in it."""
    most, total = max(lines, key=lambda one: one.ns), sum(one.ns for one in lines)
    if key in result.training or (most.place.line and most.ns >= _ONE_LINE * total):
        return most
    place = replace(most.place, line=0, text="", call="")
    return replace(most, place=place, ns=total, share=min(total / result.between_ns, 1.0))


def _line(result: Chores, found: PlaceShare) -> tuple[Finding, ...]:
    scope, place = result.scope, found.place
    chore = _chore_at(place)
    fraction = scope.fraction(found.ns)
    does, idle = (
        (_does(result.run, place, chore), "")
        if chore
        else ("runs Python while no operator runs", ", in which no operator runs")
    )
    said = f"{format_ns(scope.per_step(found.ns))} {scope.each} ({format_fraction(fraction)} of the window) are there{idle}"
    return (
        HOST_LINE.found(
            title=f"{place.words if place.line else place.name} {does}",
            fraction=fraction,
            confidence=_SURE if chore is not None else _LESS_SURE,
            recoverable_ns=scope.per_step(round(found.ns * result.cored)),
            evidence=(Evidence(said, "chores.between_ns", float(found.ns), "ns"), *_held(result.run, place)),
            fix=chore.fix if chore is not None else HOST_LINE.fixes[0],
            next_tools=(py_spy_main(scope.command),),
            one_stretch=fraction,
        ),
    )


def places(_: Facts, result: Chores) -> Mapping[str, tuple[PlaceShare, ...]]:
    """The lines of each."""
    hot, named = _of_run(result), _between(result)
    found: dict[str, tuple[PlaceShare, ...]] = {}
    if hot is not None and result.run is not None:
        total, ns = sum(line.share for line in hot[1]), result.run.mean_ns * result.run.n
        found[CHORE.id] = tuple(line.shown(line.share / total, round(line.share * ns), line.n_looks) for line in hot[1])
    if named is not None:
        lines = () if named.place.line else _by_function(result).get(_key(named), ())
        each = tuple(replace(one, share=one.ns / named.ns) for one in lines if one.place.line)
        found[HOST_LINE.id] = each or (replace(named, share=1.0),)
    return found


def present(result: Chores) -> Section:
    """The lines of the run."""
    lines = result.run.lines if result.run is not None else ()
    table = TableView(
        title="lines of the run beside the recorded steps",
        headers=("line", "looks", "share"),
        units=("text", "count", "fraction"),
        rows=tuple((line.place.words, line.n_looks, line.share) for line in lines),
    )
    return Section(
        analyzer="chores",
        title="what lines do beside training",
        values={"between_ns": result.between_ns},
        tables=(table,) if lines else (),
    )


ANALYZER = Analyzer(
    name="chores",
    question="which line takes time in which nothing trains?",
    needs="a capture by profkit on a CPU",
    measure=measure,
    judge=judge,
    present=present,
    places=places,
)
