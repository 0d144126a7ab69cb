"""What does the run do that the recorded steps do not show: rare long steps, steps and memory that grow?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from profkit.analyzers.base import Analyzer, Scope, scope_of
from profkit.analyzers.tools import late_steps, operators, py_spy_main
from profkit.findings.chores import Does, chore_of, decomposes, fix_of_growth, fix_of_rare, joins, makes_square_bases
from profkit.findings.kind import FindingKind
from profkit.findings.patterns import SUBNORMAL
from profkit.findings.whole_run import (
    DECOMPOSES,
    GROWS,
    OTHER_STEPS,
    RARE,
    RARE_INPUT,
    RECOPIES,
    REST_METRIC,
    SINKS,
    SLOWS,
)
from profkit.model.code import ACTING, PlaceShare
from profkit.model.documents.rank_report import Section
from profkit.model.finding import Evidence, Finding, NextTool, Severity, Skipped
from profkit.redact.later import later
from profkit.shell import clean
from profkit.timeline import Facts
from profkit.timeline.whole_run import Filled, Hot, Line, Memory, Rare, Slower, WholeRun, whole_run
from profkit.units import format_bytes, format_count, format_fraction, format_ns

_INPUT: Final = ("load", "wait", "start")
_MANY_LOOKS: Final = 30
"""Looks at what rare steps do, from which their place is as good as certain: two thirds of 30 are above half with 97 %."""
_SURE: Final = 0.85
_LESS_SURE: Final = 0.7
_SLOWER: Final = 0.05
"""Of the step, from which its growth is no weather. Chosen: thirds of a steady run on a quiet machine differ by 1 to 3 %."""
_SLOWER_CAP: Final = 0.7
"""Medium: the recorded steps are right about themselves, and no example of those that come."""
_DOES: Final = {RECOPIES.id: "copies all that it has kept so far", SLOWS.id: "takes longer with each step"}
_FROM_START: Final = 0.05
"""Of the first third: a line that begins in mid-run (a late phase of the training) does not grow with each step. Chosen."""
_COMPUTES: Final = later(r"[-+*/]|\.(?:mul|div|addcmul|addcdiv|lerp|square|pow|add|sub)_?\(")
_DEAR_NS: Final = 250
"""What a subnormal number costs at most in each step. Measured: 90 ns, in two operators, where 2 % of values are so."""
_DEAREST_NS: Final = 10 * _DEAR_NS
"""...where nobody knows in how many operators. Chosen: six products and a convolution took 2000 ns."""
_MOST_SINKS: Final = 0.8
"""Of the run, what a fix saves at most where numbers sink; below, half of what they do not explain may go as well: other
programs make the first steps longer. Chosen: beside seven of them, 22 % was told of 59 %."""
_LONGER: Final = 1.25
"""Times what a line takes of a step at first, from which it becomes slow. Chosen: as steps of a run (`is_slower`)."""
_MOSTLY: Final = 0.5
_LATE: Final = 0.75
"""Of the run's steps, after which a second recording begins. Chosen: the middle of its last half."""
_STARTS: Final = "starting the loader's workers"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The run and the scope of the recorded steps, whose time its gains are turned into."""

    scope: Scope
    run: WholeRun
    package: str
    """The library that runs the loop, "" where the script's own code does or nobody knows."""
    early_ns: int = 0
    """A step beside the recorded ones, near the run's begin; 0 where that is not known."""


class Filling(msgspec.Struct, frozen=True):
    """What fills with subnormal numbers, and the line that computes with it first, as looks find it."""

    filled: Filled
    line: Hot
    beyond: float
    """Of the run (0-1), what it takes beyond steps without such numbers."""

    @property
    def n_looks(self) -> int:
        """Those at the line."""
        return self.line.n_looks


class Unexplained(msgspec.Struct, frozen=True):
    """That the run becomes slower, with its numbers, and what would show why."""

    said: str
    tool: NextTool


def measure(facts: Facts) -> Seen | Skipped:
    """Read what the capture wrote."""
    run = whole_run(facts.trace)
    if run is None:
        return Skipped(
            analyzer="whole_run",
            reason="the trace does not say what the steps beside the recorded ones take",
            how_to_get="record with profkit capture, and let the script run on",
        )
    return Seen(
        scope=scope_of(facts),
        run=run,
        package=facts.code.trainer if facts.code else "",
        early_ns=facts.trace.meta.unprofiled_step_ns or 0,
    )


def judge(result: Seen) -> tuple[Finding, ...]:
    """`host.rare` or `input.rare`, `memory.recopies` or `host.slows`, and `memory.grows`."""
    run, growing = result.run, _growing(result.run)
    return (
        *(_growth(result, *growing) if growing is not None else ()),
        *(_rare(result, run.rare) if run.rare is not None else ()),
        *(_grows(result, run.memory) if run.memory is not None else ()),
    )


def _rare(result: Seen, rare: Rare) -> tuple[Finding, ...]:
    kind, run, scope, first = _kind(rare), result.run, result.scope, _first(rare)
    saved = 1 - _modelled(rare) if kind in (RARE, DECOMPOSES) and not _is_model(rare) else 1.0
    share = rare.share * saved  # all of it: what no look found at the line lies beside it in the same steps
    if share < kind.limit("run"):
        return ()
    n_steps = rare.n_steps or run.n
    often = (
        f"every {round(rare.every)} steps" if rare.is_regular and rare.every >= 2 else f"in {rare.n} of {n_steps} steps"
    )
    often += f" from step {rare.since} on" if rare.since else ""
    what = _STARTS if rare.way == "start" else first.place.words
    per_step_ns = rare.beyond_ns / n_steps
    # the other findings are in recorded time: turned back by `in_unprofiled_time`, it is this again
    weight = (scope.step_ns or run.usual_ns) / run.usual_ns
    more = [line for line in (*rare.lines[1:], *rare.inside) if line.share > 0]
    how = "" if rare.n_steps > run.n or rare.since else " without the profiler"
    said = (
        f"{often} a step takes {format_ns(rare.long_ns)}, the others {format_ns(run.usual_ns)} ({n_steps} steps{how})"
    )
    others = f" and {len(rare.lines) - 1} other lines" if len(rare.lines) > 1 else ""
    there = f"{format_fraction(rare.at_place)} of what these take more is at {first.place.words}{others}"
    evidence = [
        Evidence(said, "whole_run.long_ns", float(rare.long_ns), "ns"),
        Evidence(there, "whole_run.at_place", rare.at_place, "fraction"),
    ]
    if rare.since:
        said = f"before step {rare.since} the run does none of it: its share is of the steps from there on"
        evidence.append(Evidence(said, "whole_run.since", float(rare.since), "count"))
    if saved < 1:
        said = f"{format_fraction(1 - saved)} of what these take more is forward passes of the model, and no part of the share"
        evidence.append(Evidence(said, REST_METRIC, per_step_ns * (1 - saved) * weight, "ns"))
    if more:
        said = "; ".join(f"{line.place.words} ({format_fraction(line.share)})" for line in more[:3])
        evidence.append(Evidence(f"there most often: {said}", "whole_run.n_lines", float(len(more)), "count"))
    if kind is DECOMPOSES and makes_square_bases(first.text):
        said = "torch.linalg.svd has full_matrices=True unless told otherwise: it makes a square basis of each side, also of the longer one, whatever is used of it"
        evidence.append(Evidence(said, "whole_run.full_matrices", 1.0, "count"))
    of = " of an evaluation" if saved < 1 and rare.evaluates(first) else ""
    return (
        kind.found(
            title=f"{often}, {what} takes {format_ns(round(rare.beyond_ns / rare.n * saved))}{of}",
            confidence=_confidence(rare.n_looks),
            recoverable_ns=0 if kind is OTHER_STEPS else round(per_step_ns * saved * weight),
            fraction=share,
            evidence=tuple(evidence),
            fix=fix_of_rare(
                Does(
                    way=rare.way,
                    text=first.text,
                    callee=rare.callee,
                    functions=rare.functions,
                    is_evaluation=rare.evaluates(first),
                    is_model=_is_model(rare),
                ),
                OTHER_STEPS.fixes[0] if kind is OTHER_STEPS or _is_acting(rare) else "",
                result.package,
            ),
            next_tools=(_shapes(scope) if kind is DECOMPOSES else py_spy_main(scope.command),),
            one_stretch=share,
        ),
    )


def _shapes(scope: Scope) -> NextTool:
    look_for = "the shapes of aten::linalg_svd and its like, and what is used of what they give"
    return operators(scope, "which matrices does the line decompose?", look_for, flags="--shapes")


def _first(rare: Rare) -> Line:
    """The line to name, by whose text the fix is told: of forward passes the evaluation's that calls the model."""
    return rare.lines[0] if _has_chore(rare) else rare.named


def _modelled(rare: Rare) -> float:
    """What of an evaluation (0-1) the model computes; a line in a module that writes or saves is no forward pass."""
    return rare.modelled if rare.is_evaluation and not _has_chore(rare) else 0.0


def _has_chore(rare: Rare) -> bool:
    return any(chore_of(line.text) is not None for line in rare.lines)


def _is_model(rare: Rare) -> bool:
    return _modelled(rare) >= _MOSTLY


def _kind(rare: Rare) -> FindingKind:
    if rare.way in _INPUT:
        return RARE_INPUT
    is_acting = _is_acting(rare) and rare.share < RARE.limit("acting")
    is_small = _is_model(rare) and rare.share < RARE.limit("evaluation")
    if is_acting or is_small:
        return OTHER_STEPS
    return DECOMPOSES if decomposes(_first(rare).text) else RARE


def _is_acting(rare: Rare) -> bool:
    return any(_acts(line) for line in rare.lines)


def _acts(line: Line) -> bool:
    """Whether it makes what is trained on, by its words; what `gc` collects is garbage."""
    words = line.place.single_words
    return bool(words & ACTING - ({"collect"} if "gc" in words else set()))


def confidence_cap(result: Seen | None, findings: Iterable[Finding]) -> float:
    """The most a verdict may claim: less where the step becomes slower and nothing says why, no finding either."""
    return _SLOWER_CAP if result is not None and _is_unexplained(result.run, findings) else 1.0


def unexplained(result: Seen | None, findings: Iterable[Finding]) -> Unexplained | None:
    """What to say of a run that becomes slower by itself, and neither line nor finding is known; None of others."""
    if result is None or not result.run.is_far_slower or not _is_unexplained(result.run, findings):
        return None
    run = result.run
    said = f"a step takes {format_ns(run.first_ns)} in the first third of the run, {format_ns(run.last_ns)} in its last{_most_grown(run)}: the recorded steps, early in it, do not show why"
    return Unexplained(said=said, tool=late_steps(result.scope, round(_LATE * run.n)))


def _most_grown(run: WholeRun) -> str:
    """The line that has most of what the step grows by, as a clause; "" where none has half."""
    more = ((late - early, line) for line in run.lines for early, late in [_of_steps(run, line)])
    grown_ns, line = max(more, key=lambda one: one[0], default=(0.0, None))
    share = grown_ns / (run.last_ns - run.first_ns)
    return f", {format_fraction(min(share, 1.0))} of that at {line.place.words}" if line and share >= _MOSTLY else ""


def _is_unexplained(run: WholeRun, findings: Iterable[Finding]) -> bool:
    """What decays becomes subnormal in more places with each step: that is why, where it has half of what is added."""
    least = _MOSTLY * (1 - run.first_ns / run.last_ns) if run.last_ns else 0.0
    is_named = any(one.id == SUBNORMAL.id and one.fraction >= least for one in findings)
    return run.is_slower and run.memory is None and _growing(run) is None and not is_named


def _kind_of_growth(run: WholeRun, grown: Slower | Hot | Filling, line: Line) -> FindingKind:
    if isinstance(grown, Filling):
        return SINKS
    if joins(line.text, grown.callee if isinstance(grown, Slower) else ""):
        return RECOPIES
    if isinstance(grown, Hot) or _has_hooks(run) or _sunk_at(run, line, run.last_ns - run.first_ns, _DEAR_NS) is None:
        return SLOWS
    return SINKS


def _sunk_at(run: WholeRun, line: Line, grown_ns: int, most_ns: int) -> Filled | None:
    """What fills with subnormal numbers and a line computes with, where the step grows by no more than that can cost."""
    each = run.subnormal.each if run.subnormal is not None else ()
    return next((o for o in each if _computes_with(o, line) and 0 < grown_ns <= most_ns * (o.n_last - o.n_first)), None)


def _computes_with(sunk: Filled, line: Line) -> bool:
    name = sunk.of.rpartition(".")[2].partition("[")[0]
    computes = _COMPUTES.search(line.text) is not None
    if sunk.of.startswith("the optimizer's "):  # its step() has names of its own for that
        return ".step(" in line.text or (computes and line.function == "step")
    return computes and bool(name) and re.search(rf"\b{re.escape(name)}\b", line.text) is not None


def _confidence(n_looks: int) -> float:
    return _SURE if n_looks >= _MANY_LOOKS else _LESS_SURE


def _growth(result: Seen, grown: Slower | Hot | Filling, line: Line) -> tuple[Finding, ...]:
    run = result.run
    kind = _kind_of_growth(run, grown, line)
    sunk = _sunk_at(run, line, run.last_ns - run.first_ns, _DEAR_NS) if kind is SINKS else None
    most = max(1 - result.early_ns / run.mean_ns, 0.0) if kind is SINKS else 1.0  # numbers sink later than that
    if isinstance(grown, Filling):
        sunk = grown.filled
        share, how, evidence = _sinks(run, grown)
    elif isinstance(grown, Slower):
        share, how, evidence = _slows(run, grown, line, most)
    else:
        share, how, evidence = _grown(run, grown)
    if sunk is not None:
        evidence = (*evidence, _sunk(sunk))
    if share < kind.limit("run"):
        return ()
    pace_ns = result.scope.step_ns or (grown.pace_ns if isinstance(grown, Slower) else run.first_ns)
    if isinstance(grown, Filling):
        mean_ns = max(pace_ns * run.mean_ns / (result.early_ns or run.first_ns), pace_ns)
        gain_ns = round(share * mean_ns)
        most_ns: int | None = round(min((1 + share) / 2, _MOST_SINKS) * mean_ns)
        evidence = (*evidence, _beside_gain(round(mean_ns) - pace_ns - gain_ns))
    else:
        gain_ns = round(pace_ns * share / (1 - share))
        most_ns = run.most_ns(gain_ns, share, line)
    return (
        kind.found(
            title=f"{line.place.words} {_does(kind, run, sunk)}: {how}",
            confidence=_confidence(grown.n_looks),
            recoverable_ns=gain_ns,
            most_recoverable_ns=most_ns,
            fraction=share,
            evidence=evidence,
            fix=fix_of_growth(kind, line.text, has_hooks=_has_hooks(run)),
            next_tools=(py_spy_main(result.scope.command),),
            one_stretch=share,
        ),
    )


def _slows(run: WholeRun, slower: Slower, line: Line, most: float) -> tuple[float, str, tuple[Evidence, ...]]:
    """The share of the run that goes with steps that become longer, how they grow, and what shows it; the share is `most` at most."""
    share = run.beyond(run.removable * slower.beyond_ns / (slower.pace_ns * slower.n + slower.beyond_ns), line)
    share = min(share, most)
    pace = format_ns(round((slower.pace_ns + slower.beyond_ns / slower.n) * (1 - share)))
    first, how = _thirds(run)
    and_back = " and in its backward pass" if slower.has_backward else ""
    there = f"{format_fraction(slower.at_place)} of what it grows by is at that line{and_back}; the rest of the step hardly grows"
    saved = f"all steps at the pace of the first ones ({pace}) would save {format_fraction(share)} of the run so far; of a run that goes on longer, more"
    evidence = (
        Evidence(f"{first}, more in each quarter", "whole_run.last_ns", float(run.last_ns), "ns"),
        Evidence(there, "whole_run.growth_at_place", slower.at_place, "fraction"),
        Evidence(saved, "whole_run.slower_share", share, "fraction"),
    )
    return share, how, evidence


def _thirds(run: WholeRun) -> tuple[str, str]:
    """How its steps grow: with their times, and in short."""
    times = f"a step takes {format_ns(run.first_ns)} in the first third of the run, {format_ns(run.last_ns)} in the last ({run.n} steps without the profiler)"
    return times, f"a step takes {format_fraction(run.last_ns / run.first_ns - 1)} longer in the last third of the run"


def _grown(run: WholeRun, line: Hot) -> tuple[float, str, tuple[Evidence, ...]]:
    """The same of a line, by looks at the run."""
    first, _, last = map(format_fraction, line.in_thirds)
    said = f"{line.n_looks} looks at the run beside the recorded steps find {format_fraction(line.share)} of its time at that line, more in each third; {format_fraction(line.beyond)} are beyond the pace that it has at first"
    evidence = (Evidence(said, "whole_run.growing_share", line.share, "fraction"),)
    return run.beyond(line.beyond, line), f"{first} of the first third of the run, {last} of the last", evidence


def _sinks(run: WholeRun, filling: Filling) -> tuple[float, str, tuple[Evidence, ...]]:
    """The same where a line computes with what sinks, and other lines with what comes of it."""
    first, how = _thirds(run)
    share, line = filling.beyond, filling.line
    early, late = map(format_ns, map(round, _of_steps(run, line)))
    there = f"that line takes some {early} of a step in the first third, {late} in the last; other lines compute with these numbers as well"
    saved = f"if each such number costs the same, steps without them would save {format_fraction(share)} of the run"
    evidence = (
        Evidence(first, "whole_run.last_ns", float(run.last_ns), "ns"),
        Evidence(there, "whole_run.growing_share", line.share, "fraction"),
        Evidence(saved, "whole_run.slower_share", share, "fraction"),
    )
    return share, how, evidence


def _beside_gain(rest_ns: int) -> Evidence:
    """What the mean step has beyond the recorded ones and a fix leaves; negative: what it saves of the recorded ones."""
    time = format_ns(abs(rest_ns))
    said = f"{time} of that is in the recorded steps" if rest_ns < 0 else f"{time} more of the mean step stays"
    return Evidence(said, REST_METRIC, float(rest_ns), "ns")


def _sunk(sunk: Filled) -> Evidence:
    said = f"some {format_count(sunk.n_last)} values of {clean(sunk.of)} are subnormal late in the run, {format_count(sunk.n_first)} at first"
    return Evidence(said, "whole_run.n_subnormal", float(sunk.n_last), "count")


def _does(kind: FindingKind, run: WholeRun, sunk: Filled | None) -> str:
    if sunk is not None:
        return f"becomes slow, as {clean(sunk.of)} fills with subnormal numbers (below 1.2e-38)"
    piled = ", while hooks of the model pile up ({} at first, {} in the end)".format(*run.hooks)
    return _DOES[kind.id] + (piled if kind is SLOWS and _has_hooks(run) else "")


def _has_hooks(run: WholeRun) -> bool:
    return run.hooks[1] > run.hooks[0]


def _growing(run: WholeRun) -> tuple[Slower | Hot | Filling, Line] | None:
    """What takes more and more of the run, and its line: steps, or a line where the machine hides that these grow.

    Or numbers that sink, where other lines compute with them as well, so that no line has most of the growth.
    """
    if run.slower is not None and run.slower.line is not None:
        return run.slower, run.slower.line
    growing = [one for one in run.lines if one.grows and (joins(one.text) or one.in_thirds[0] >= _FROM_START)]
    most = max(growing, key=lambda one: one.beyond, default=None)
    return _filling(run) if most is None else (most, most)


def _of_steps(run: WholeRun, line: Hot) -> tuple[float, float]:
    """What a line takes (ns) of a step in the first and in the last third of the run."""
    return line.in_thirds[0] * run.first_ns, line.in_thirds[2] * run.last_ns


def _filling(run: WholeRun) -> tuple[Filling, Line] | None:
    sunk = run.subnormal
    if not run.is_slower or run.is_weather or sunk is None:
        return None
    for line in run.lines:
        early, late = _of_steps(run, line)
        filled = _sunk_at(run, line, sunk.last_ns - sunk.first_ns, _DEAREST_NS) if late >= _LONGER * early else None
        share = min(sunk.share(filled), _MOST_SINKS) if filled is not None else 0.0
        if filled is not None and share:
            return Filling(filled, line, share), line
    return None


def _grows(result: Seen, memory: Memory) -> tuple[Finding, ...]:
    if memory.grown_bytes < GROWS.limit("bytes") or memory.n_steps < 1 or memory.bytes_per_step < 1:
        return ()
    run, held = result.run, memory.held
    has_graph = held is not None and held.has_graph
    slower_ns = max(run.last_ns - run.first_ns, 0)
    is_said = run.slower is not None and run.slower.line is not None  # by what costs it
    cost_ns = slower_ns // 2 if slower_ns >= _SLOWER * run.first_ns and not is_said else 0
    what = "tensors with their graphs" if has_graph else "tensors"
    kept = "" if held is None else f"`{held.shown_name}` keeps {what}"
    place = f", in {held.at.place.words}" if held is not None and held.at is not None else ""
    said = (
        f"{format_bytes(memory.grown_bytes)} more after {memory.n_steps} steps, steadily since step {memory.first_step}"
    )
    evidence = [Evidence(said, "whole_run.bytes_per_step", float(memory.bytes_per_step), "bytes")]
    if held is not None:
        evidence.append(Evidence(kept + place, "whole_run.held", held.per_step, "count"))
    if cost_ns:
        said = f"the step grows as well: from {format_ns(run.first_ns)} to {format_ns(run.last_ns)}"
        evidence.append(Evidence(said, "whole_run.last_ns", float(run.last_ns), "ns"))
    share = cost_ns / run.usual_ns
    scale = (result.scope.step_ns or run.usual_ns) / run.usual_ns
    return (
        GROWS.found(
            title=f"memory grows by {format_bytes(memory.bytes_per_step)} with every step"
            + (f": {kept}" if has_graph else ""),
            severity=Severity.MEDIUM if has_graph else Severity.LOW,
            confidence=_SURE if has_graph else _LESS_SURE,
            recoverable_ns=round(cost_ns * scale),
            fraction=share,
            evidence=tuple(evidence),
            fix="keep loss.detach() or loss.item(), not the loss: it keeps the graph of its step"
            if has_graph
            else "find out what each step leaves behind; bound what is kept",
        ),
    )


def places(_: Facts, result: Seen) -> Mapping[str, tuple[PlaceShare, ...]]:
    """The lines, which no recorded row has."""
    found: dict[str, tuple[PlaceShare, ...]] = {}
    run, rare = result.run, result.run.rare
    if rare is not None:
        shown = tuple(line.shown(line.share, round(rare.beyond_ns * line.share), rare.n) for line in rare.lines)
        found[_kind(rare).id] = shown
    if (growing := _growing(run)) is not None:
        grown, line = growing
        told = (
            (grown.at_place, grown.beyond_ns, grown.n)
            if isinstance(grown, Slower)
            else (1.0, round(grown.beyond * run.mean_ns * run.n), grown.n_looks)
        )
        found[_kind_of_growth(run, *growing).id] = (line.shown(*told),)
    held = run.memory.held if run.memory is not None else None
    if held is not None and held.at is not None:
        found[GROWS.id] = (held.at.shown(1.0, 0, 1),)
    return found


def present(result: Seen) -> Section:
    """The numbers of the run."""
    run = result.run
    values: dict[str, object] = {
        "n_steps": run.n,
        "median_step_ns": run.median_ns,
        "mean_step_ns": run.mean_ns,
        "usual_step_ns": run.usual_ns,
        "n_long": run.n_long,
    }
    if run.slower is not None:
        values["pace_ns"] = run.slower.pace_ns
        values["beyond_pace_ns"] = run.slower.beyond_ns
    if run.memory is not None:
        values["bytes_per_step"] = run.memory.bytes_per_step
    return Section(analyzer="whole_run", title="the whole run", values=values, tables=())


ANALYZER = Analyzer(
    name="whole_run",
    question="what does the run do that the recorded steps do not show?",
    needs="a capture by profkit of a run that went on after it",
    measure=measure,
    judge=judge,
    present=present,
    places=places,
)
