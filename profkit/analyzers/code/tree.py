"""The module tree: work, kernels and idle time of each module, by phase; and what a trainer calls beside (`host.callback`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.analyzers.base import Analyzer, Scope, before_launches, busiest_thread, scope_of
from profkit.findings.kernels import LINE
from profkit.findings.trainers import CALLBACK, callback_fix
from profkit.model.arrays import I64
from profkit.model.code import ModuleUse, Phase, PlaceShare
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, Skipped
from profkit.model.intervals import Intervals
from profkit.model.trace import Trace
from profkit.timeline import Facts
from profkit.timeline.code import Rows, shares
from profkit.timeline.cpu import training_threads
from profkit.timeline.host import self_times_ns
from profkit.units import format_fraction

if TYPE_CHECKING:
    from profkit.analyzers.code.asked import Operator, Own
    from profkit.timeline.code.code import Code, Moments
    from profkit.timeline.code.modules import Module

_SURE_OF_HOOKS = 0.8
"""Chosen: what a callback does may still be wanted, and how much of it is the profiler's is not known exactly."""
_TRAINS = 0.1
"""Share of a function's time that lies in the backward pass, from which it is a part of training. Chosen."""
MAX_SHOWN: Final = 40
"""Modules of the table, those alike as one."""
MAX_LINES: Final = 10
_NUMBER: Final = re.compile(r"\[\d+\]|(?<=\.)\d+(?=\.|$)")
_MUCH: Final = 0.3
"""Share of the window from which a verdict on the work names the line that has it. Chosen."""
NO_STACKS: Final = "no Python stacks in this trace"
HOW_TO_GET: Final = "record them: profkit capture -- python train.py (torch.profiler: with_stack=True)"


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the trainer calls beside training, and its time in the window, ns."""

    name: str
    ns: int
    rows: Rows


def hooks_of(facts: Facts, code: Code) -> tuple[Hook, ...]:
    """What the trainer calls beside training, on the thread that trains; the longest first."""
    named = [place.beside for place in code.places]
    main = facts.main_device
    times = Intervals.pairs([facts.trace.window_ns])
    if main is not None:  # what runs while the GPU works costs nothing
        times = main.activity.any.gaps(*facts.trace.window_ns)
    threads = facts.host.threads if main is not None else training_threads(facts.trace)
    rows = Rows.of_host(code, busiest_thread(facts, threads) if any(named) else (), times)
    if not len(rows):
        return ()
    seen = code.at(rows.thread, rows.at_ns)
    names = sorted(set(named) - {""})
    number = np.array([*(names.index(one) if one else -1 for one in named), -1])[seen.place]
    found = []
    for one, name in enumerate(names):
        mine = np.flatnonzero(number == one)
        part = Rows(thread=rows.thread[mine], at_ns=rows.at_ns[mine], ns=rows.ns[mine])
        if part.ns[seen.phase[mine] == Phase.BACKWARD].sum() > _TRAINS * part.ns.sum():
            continue
        found.append(Hook(name=name, ns=int(part.ns.sum()), rows=part))
    return tuple(sorted(found, key=lambda hook: -hook.ns))


def judge(scope: Scope, hooks: tuple[Hook, ...], trainer: str) -> tuple[Finding, ...]:
    """The finding, where together they take enough of the window."""
    total = sum(hook.ns for hook in hooks)
    if not hooks or scope.fraction(total) < CALLBACK.limit("window"):
        return ()
    first = hooks[0]
    fraction = scope.fraction(total)
    return (
        CALLBACK.found(
            title=f"{first.name} takes part of each step, beside training"
            if "' " in first.name or "'s " in first.name
            else f"{trainer} calls {first.name} in each step, beside training",
            fraction=fraction,
            confidence=_SURE_OF_HOOKS,
            recoverable_ns=scope.per_step(total),
            evidence=tuple(
                Evidence.time(
                    "code.beside_ns",
                    hook.ns,
                    f"{hook.name} takes {scope.time(hook.ns)}"
                    f" ({format_fraction(scope.fraction(hook.ns))} of the window)",
                )
                for hook in hooks[:3]
                if scope.fraction(hook.ns) >= 0.01
            ),
            fix=callback_fix(trainer, first.name),
        ),
    )


def no_stacks(trace: Trace) -> str:
    """Why a trace shows no places: without frames it may still say that stacks were asked for."""
    return "it says that stacks were recorded, but holds no Python frames" if trace.meta.has_stacks else NO_STACKS


class ModuleTree(msgspec.Struct, frozen=True, kw_only=True):
    """Where the work is launched, by module; what no module has is in `phase_ns` only."""

    scope: Scope
    uses: tuple[ModuleUse, ...]
    """In the order of a tree, the longest first on each level."""
    work_ns: int
    phase_ns: dict[str, int]
    """All work by phase: forward, backward, optimizer, other."""
    known_share: float
    """Share of the work that has a module, a place or a phase of its own."""
    places: tuple[PlaceShare, ...] = ()
    """The lines with most of the work."""
    trainer: str = ""
    """The package that runs the loop, "" where the user's own code does."""
    hooks: tuple[Hook, ...] = ()
    """What that package calls beside training."""
    operators: tuple[Operator, ...] = ()
    """What the line with most of the work computes."""
    n_called: int = 0
    """Kinds of modules that have a part of that line's work."""
    own: Own | None = None
    """The place where operators that no layer consists of take most time."""


def measure(facts: Facts) -> ModuleTree | Skipped:
    """Sum work and idle time by module."""
    code = facts.code
    if code is None:
        return Skipped(reason=no_stacks(facts.trace), how_to_get=HOW_TO_GET)
    from profkit.analyzers.code.asked import on_line, own_work  # loaded for traces with stacks

    work, idle = work_rows(facts), idle_rows(facts)
    moments, gaps = _at(code, work), _at(code, idle)
    total = int(work.ns.sum())
    by_phase = np.bincount(moments.phase, weights=work.ns, minlength=len(Phase)).astype(np.int64)
    known = (moments.place >= 0) | (moments.module >= 0) | (moments.phase != Phase.OTHER)
    places, scope = shares(code, work, MAX_LINES), scope_of(facts)
    first = _busiest(scope, places)
    operators, n_called = on_line(facts, code, first, work) if first is not None else ((), 0)
    return ModuleTree(
        scope=scope,
        uses=_uses(code.modules, (moments.module, moments.phase, work.ns), (gaps.module, idle.ns)),
        work_ns=total,
        phase_ns={phase.word: int(by_phase[phase]) for phase in Phase},
        known_share=float(work.ns[known].sum() / total) if total else 0.0,
        places=places,
        operators=operators,
        n_called=n_called,
        own=own_work(facts, code, work, moments),
        trainer=code.trainer,
        hooks=hooks_of(facts, code),
    )


def busiest(tree: ModuleTree | None) -> PlaceShare | None:
    """The line with most of the work and its share (0-1) of the window, where that is a good part of it."""
    return _busiest(tree.scope, tree.places) if tree is not None else None


def question_of(tree: ModuleTree | None) -> Finding | None:
    """The script's own operators at one place, where they are many, else the line with most of the work, as a question.

    None where there is neither, or where that line calls a model.
    """
    one = busiest(tree)
    if tree is None or (one is None and tree.own is None):
        return None
    from profkit.analyzers.code.asked import is_asked, question, question_of_own  # loaded for traces with stacks

    line = one if one is not None and is_asked(one, tree.operators, tree.n_called) else None
    own = tree.own
    is_much = own is not None and (own.place.share >= LINE.limit("own") or own.started >= LINE.limit("started"))
    if own is not None and own.operators and is_much and (line is None or own.place.place.name != line.place.name):
        return question_of_own(tree.scope, own)
    return question(tree.scope, line, tree.operators) if line is not None else None


def _busiest(scope: Scope, places: tuple[PlaceShare, ...]) -> PlaceShare | None:
    if not places:
        return None
    first = max(places, key=lambda one: one.ns)
    share = min(scope.fraction(first.ns), 1.0)
    is_known = bool(first.place.line) and not first.place.inside and first.phase is not Phase.OPTIMIZER
    return replace(first, share=share) if is_known and share >= _MUCH and not _calls_backward(first) else None


def _calls_backward(one: PlaceShare) -> bool:
    """Whether a line has its time because it calls the backward pass, of which the forward lines are not known."""
    return one.phase is Phase.BACKWARD and "backward" in (one.place.call or one.place.text)


def _at(code: Code, rows: Rows) -> Moments:
    """Where rows are; of unknown threads nowhere."""
    from profkit.timeline.code.code import Moments  # loaded for traces with stacks

    none, nowhere = np.full(len(rows), -1, np.int32), np.zeros(len(rows), np.bool_)
    place, module, phase, deeper = none, none.copy(), np.full(len(rows), Phase.OTHER, np.int8), nowhere
    known = np.flatnonzero(rows.thread >= 0)
    if known.size:
        found = code.at(rows.thread[known], rows.at_ns[known])
        place[known], module[known], phase[known] = found.place, found.module, found.phase
        deeper[known] = found.is_deeper
    return Moments(place=place, module=module, phase=phase, is_deeper=deeper)


def work_rows(facts: Facts) -> Rows:
    """The work of the window: device rows by their launch, or on a CPU the operators' own times."""
    trace, (low, high) = facts.trace, facts.trace.window_ns
    main = facts.main_device
    if main is not None:
        rows = main.activity.rows
        inside = np.minimum(trace.gpu.end_ns[rows], high) - np.maximum(trace.gpu.start_ns[rows], low)
        return Rows.of_device(trace, rows, np.maximum(inside, 0))
    own = self_times_ns(trace.ops)
    rows = np.flatnonzero((trace.ops.start_ns >= low) & (trace.ops.end_ns <= high) & (own > 0))
    return Rows.of_ops(trace, rows, own[rows])


def idle_rows(facts: Facts) -> Rows:
    """The idle time of the device by the launch that ends each gap; gaps between queued operations are left out."""
    trace, main = facts.trace, facts.main_device
    none: I64 = np.empty(0, np.int64)
    if main is None:
        return Rows(thread=none.astype(np.int32), at_ns=none, ns=none)
    gaps, launch = before_launches(facts, main)
    idle = main.idle
    caused = (idle.launch | idle.host | idle.sync | idle.data) - idle.turnaround
    return Rows.of_calls(trace, launch, caused.covered_ns(gaps.start_ns, gaps.end_ns))


def _uses(
    modules: tuple[Module, ...],
    work: tuple[NDArray[np.int32], NDArray[np.int8], I64],
    idle: tuple[NDArray[np.int32], I64],
) -> tuple[ModuleUse, ...]:
    """The modules with what is inside each; alike ones as one, in the order of a tree."""
    module, phase, ns = work
    mine = module >= 0
    table = np.zeros((len(modules), 5), np.int64)
    table[:, 0] = np.bincount(module[mine], weights=ns[mine], minlength=len(modules))
    for column, one in ((1, Phase.FORWARD), (2, Phase.BACKWARD)):
        chosen = mine & (phase == one)
        table[:, column] = np.bincount(module[chosen], weights=ns[chosen], minlength=len(modules))
    table[:, 3] = np.bincount(module[mine], minlength=len(modules))
    has = idle[0] >= 0
    table[:, 4] = np.bincount(idle[0][has], weights=idle[1][has], minlength=len(modules))
    depth = [_depth(modules, place) for place in range(len(modules))]
    for place in sorted(range(len(modules)), key=lambda each: -depth[each]):
        if modules[place].parent >= 0:
            table[modules[place].parent] += table[place]
    names = [alike_name(module.name) for module in modules]
    alike: dict[tuple[str, ...], list[int]] = {}
    for place in range(len(modules)):
        alike.setdefault(_path(modules, names, place), []).append(place)
    sums = {path: table[places].sum(axis=0) for path, places in alike.items()}

    def order(path: tuple[str, ...]) -> list[tuple[int, str]]:
        heads = [path[: level + 1] for level in range(len(path))]
        return [(-int((sums[head][0] + sums[head][4]) if head in sums else 0), head[-1]) for head in heads]

    ranked = sorted(sums, key=order)
    return tuple(
        ModuleUse(
            name=path[-1],
            depth=len(path) - 1,
            n_modules=len(alike[path]),
            work_ns=int(sums[path][0]),
            forward_ns=int(sums[path][1]),
            backward_ns=int(sums[path][2]),
            n_rows=int(sums[path][3]),
            idle_ns=int(sums[path][4]),
        )
        for path in ranked
        if sums[path].any()
    )


def _depth(modules: tuple[Module, ...], place: int) -> int:
    depth = 0
    while (place := modules[place].parent) >= 0:
        depth += 1
    return depth


def _path(modules: tuple[Module, ...], names: list[str], place: int) -> tuple[str, ...]:
    """The names of a module and those around it, the outermost first."""
    path = []
    while place >= 0:
        path.append(names[place])
        place = modules[place].parent
    return tuple(reversed(path))


def alike_name(name: str) -> str:
    """A module's name with `*` for every number that tells it from modules like it."""
    return _NUMBER.sub(lambda match: "[*]" if match[0].startswith("[") else "*", name)


def tree_table(tree: ModuleTree) -> tuple[TableView, ...]:
    """The tree as a table, of the largest modules; empty without any."""
    scope = tree.scope
    largest = sorted(tree.uses, key=lambda use: (use.depth > 0, -(use.work_ns + use.idle_ns)))[:MAX_SHOWN]
    kept = set(map(id, largest))
    rows = [
        (
            "  " * use.depth + _last(use),
            use.n_modules,
            scope.per_step(use.forward_ns),
            scope.per_step(use.backward_ns),
            *(() if scope.is_cpu else (scope.per_step(use.idle_ns),)),
            use.n_rows / scope.n_steps,
            scope.fraction(use.work_ns),
        )
        for use in tree.uses
        if id(use) in kept
    ]
    if not rows:
        return ()
    idle = {} if scope.is_cpu else {"idle before": "ns"}
    work = {"operators" if scope.is_cpu else "kernels": "count", "of window": "fraction"}
    return (
        TableView.of(
            f"modules ({scope.each})",
            {"module": "text", "n": "count", "forward": "ns", "backward": "ns", **idle, **work},
            rows,
            note="" if len(rows) == len(tree.uses) else f"the largest {len(rows)} of {len(tree.uses):,}",
        ),
    )


def _lines_table(tree: ModuleTree) -> Iterator[TableView]:
    """The lines with most of the work; empty without any."""
    what = "operator" if tree.scope.is_cpu else "kernel"
    rows = tuple((one.place.words, one.place.module, one.phase.word, one.ns, one.share) for one in tree.places)
    if not rows:
        return
    yield TableView.of(
        f"lines by {what} time",
        {"line": "text", "module": "text", "mostly": "text", "time": "ns", "share": "fraction"},
        rows,
    )


def _last(use: ModuleUse) -> str:
    """The part of a name that its row in the tree shows: the rows above have the rest."""
    return use.name.rpartition("/")[2] if use.depth else use.name


def present(result: ModuleTree) -> Section:
    """Show the tree."""
    return Section(
        title="modules",
        values={"work_ns": result.work_ns, "phase_ns": dict(result.phase_ns), "known_share": result.known_share},
        tables=(*_lines_table(result), *tree_table(result)),
    )


ANALYZER = Analyzer(
    name="code",
    question="which modules and lines does the time go to?",
    needs="Python stacks (with_stack=True)",
    measure=measure,
    judge=lambda result: judge(result.scope, result.hooks, result.trainer),
    present=present,
    rows=lambda _, result: {CALLBACK.id: sum((hook.rows for hook in result.hooks), Rows.empty())},
)
