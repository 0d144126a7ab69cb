"""Work of the host's that no backward pass reads: forward passes for nothing or for something else, loops over parameters.

An operator that autograd comes back to has the sequence number of a backward node (`phases.backward_of`). What stands
beside those, beside the backward pass and the optimizer, is read by no gradient: evaluation, a teacher, a metric, an
update of averages, clipping by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.analyzers.base import PLACED
from profkit.analyzers.patterns.ranges import Ranges, step_threads
from profkit.analyzers.patterns.same_steps import changes
from profkit.findings.patterns import FROZEN, NO_GRADIENT, UNREAD
from profkit.model.arrays import I64, Bool, distinct, distinct_codes, is_one_of, rows_by_value
from profkit.model.code import ACTING, CodePlace, Phase, PlaceShare
from profkit.model.intervals import Intervals
from profkit.model.names import family_of
from profkit.model.signature import Signature
from profkit.model.trace import CpuOps, SpanKind, Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code.phases import backward_of
from profkit.timeline.cpu import training_threads
from profkit.timeline.host import enclosing_op, launching_threads, outermost
from profkit.timeline.steps import edges

MODEL: Final = frozenset({"matmul", "convolution", "attention"})
"""Families of what a model computes with, not a metric, an average or a batch."""
_FRESH: Final = later(r"^aten::(?:rand\w*|normal\w*|empty|zeros|ones|arange|full|tensor|from_file|_pin_memory)$")
"""What makes a tensor: the batch of the next step, noise. Forward work before it is another's."""
_MOST_KNOWN: Final = 0.9
"""Share of the backward nodes with a number whose forward operator must be known. Chosen: of others it may be any."""
_MOST_LINES: Final = 2
"""Lines that call it, before the lines inside. Chosen."""
_FROZEN: Final = 0.25
"""Share of a stretch's time in modules that never train, from which it is another model's. Chosen: two networks, one much
larger."""
_OF_GROUP: Final = 0.01
"""Share of the window from which runs of the same operators count. Chosen: between operators stand many small ones."""
_LONGEST_GAP_NS: Final = 50_000
"""Chosen: as host.cpu_operators, dispatching an operator takes up to 50 us."""
_CHANGES: Final = later(r"::(?:rand|normal|uniform|bernoulli|exponential|random_|multinomial|poisson|native_dropout)")
"""What gives other values in each step."""
_TAKES_ACTIVATIONS: Final = later(r"^aten::(?:linear|addmm|mm|conv\d?d?|_?convolution|layer_norm|gru|lstm)")
_EVALUATION: Final = frozenset(
    {"acc", "accuracy", "eval", "evaluate", "evaluation", "metric", "metrics", "monitor", "val", "valid", "validate"}
    | {"validation"}
)
"""Words of a function or a line that evaluates. Chosen: not "test" or "score", which training code has as well."""
_GATHERS: Final = later(r"^aten::(?:index|index_select|gather|take|take_along_dim|embedding)$")
_INTO_TEXT: Final = later(r"^aten::(?:isfinite|masked_select)$")
"""Both of these torch calls where it makes text of a tensor: its finite numbers say how many digits there are."""
_ASKED: Final = later(r"^autograd::|Backward\d*$|^c10d::|^gloo:|^Optimizer\.")


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """Outermost operators of the step's threads that no backward node comes back to: runs with nothing else between."""

    runs: tuple[I64, ...]
    """Rows of `Trace.ops`, each run in order of time on one thread."""
    to_the_end: tuple[I64, ...]
    """These, and what ran with gradients at the end of the recording: a backward pass may still come to it."""
    within: tuple[bool, ...]
    """Per run, whether it lies in a training forward pass: beside it, operators that a backward node comes back to."""
    leads: tuple[bool, ...]
    """Per run, whether such an operator comes right behind it."""
    follows: tuple[bool, ...]
    """Per run, whether such an operator comes right before it."""
    used: I64
    """The outermost operators that a backward node comes back to."""
    trained: I64
    """These, and those of the backward pass and of the optimizer."""


def unread(trace: Trace, threads: tuple[int, ...]) -> Unread | None:
    """The runs of these threads; None where the trace has no backward pass with autograd's numbers, or they lead nowhere."""
    ops, backward = trace.ops, backward_of(trace)
    made = distinct(backward.forward[backward.forward >= 0])
    numbered = ops.sequence[backward.rows] >= 0
    if not made.size or (backward.forward[numbered] >= 0).mean() < _MOST_KNOWN:
        return None
    tops = outermost(ops)
    tops = tops[is_one_of(ops.thread[tops], threads)]
    is_used = np.zeros(tops.size, np.bool_)
    place = enclosing_op(ops.take(tops), ops.thread[made], ops.start_ns[made])
    is_used[place[place >= 0]] = True
    optimizer = trace.spans.take(np.flatnonzero(trace.spans.kind == SpanKind.OPTIMIZER))
    last = int(ops.start_ns[backward.rows].max())
    is_open = is_used | trace.named(ops.name[tops], _ASKED)
    if len(optimizer):
        is_open |= enclosing_op(optimizer, ops.thread[tops], ops.start_ns[tops]) >= 0
    every = [run for run in _runs(trace, tops, is_open) if run.size]
    before = {ops.name[run].tobytes() for run in every if ops.start_ns[run[-1]] < last}  # to which none came
    runs = [run for run in every if _is_closed(trace, run, last) or ops.name[run].tobytes() in before]
    # beside a collective is what shards gather, and no part of the forward pass
    breaks = np.sort(np.concatenate([ops.start_ns[backward.rows], ops.start_ns[tops[is_open & ~is_used]]]))
    used = tops[is_used].astype(np.int64)
    within, leads, follows = _beside(ops, runs, used, breaks)
    return Unread(
        runs=tuple(runs),
        to_the_end=tuple(every),
        within=within,
        leads=leads,
        follows=follows,
        used=used,
        trained=tops[is_open].astype(np.int64),
    )


def _beside(ops: CpuOps, runs: list[I64], used: I64, breaks: I64) -> tuple[tuple[bool, ...], ...]:
    """Per run whether used operators of its thread stand on both sides with no break between, behind it, before it."""
    ends = np.array([(run[0], run[-1]) for run in runs], np.int64).reshape(-1, 2)
    first, last = ops.start_ns[ends[:, 0]], ops.start_ns[ends[:, 1]]
    low, high = np.full(len(runs), -1, np.int64), np.full(len(runs), -1, np.int64)
    for thread, mine in rows_by_value(ops.thread[ends[:, 0]]):
        starts = np.sort(ops.start_ns[used[ops.thread[used] == thread]])
        after = np.searchsorted(starts, last[mine])
        padded = np.concatenate(([-1], starts, [-1]))
        low[mine], high[mine] = padded[after], padded[after + 1]
    n_before = [np.searchsorted(breaks, at) for at in (low, first, high)]
    leads = (high >= 0) & (n_before[2] <= n_before[1])
    within = leads & (low >= 0) & (n_before[2] <= n_before[0])
    follows = (low >= 0) & (n_before[1] <= n_before[0])
    return tuple(within.tolist()), tuple(leads.tolist()), tuple(follows.tolist())


def _is_closed(trace: Trace, run: I64, last_ns: int) -> bool:
    """Whether a run lies before the last backward pass, or all of it without gradients."""
    return bool(trace.ops.start_ns[run[-1]] < last_ns or (trace.ops.sequence[run] < 0).all())


def _runs(trace: Trace, tops: NDArray[np.intp], is_open: Bool) -> Iterator[I64]:
    """Stretches of one thread, in one step, with no operator of another kind between."""
    ops = trace.ops
    begins, _ = edges(trace.steps)
    for _, places in rows_by_value(ops.thread[tops]):
        mine = places[np.argsort(ops.start_ns[tops[places]], kind="stable")]
        group = np.cumsum(is_open[mine]) + np.searchsorted(begins, ops.start_ns[tops[mine]], "right")
        rows, group = tops[mine[~is_open[mine]]].astype(np.int64), group[~is_open[mine]]
        yield from np.split(rows, np.flatnonzero(np.diff(group)) + 1)


def unread_of_step(facts: Facts) -> Unread | None:
    """The same of the threads of the step."""
    return unread(facts.trace, step_threads(facts))


def _sorted_of_step(facts: Facts) -> tuple[list[I64], list[I64]]:
    found = facts.once(unread_of_step)
    return _sorted_runs(facts, found) if found is not None else ([], [])


def forward_work(facts: Facts) -> Ranges | None:
    """Stretches of forward work that no backward pass reads, from their first product to their last operator.

    Not of models that never train: `frozen_work` has these.
    """
    return _of_sorts(facts, is_frozen=False)


def frozen_work(facts: Facts) -> Ranges | None:
    """The same of modules in which nothing trains: teachers, target networks, frozen encoders."""
    return _of_sorts(facts, is_frozen=True)


def _of_sorts(facts: Facts, *, is_frozen: bool) -> Ranges | None:
    if facts.once(unread_of_step) is None:
        return None
    frozen, other = facts.once(_sorted_of_step)
    if frozen and _is_evaluation(facts, FROZEN.id):  # of a copy of the weights
        frozen, other = [], [*frozen, *other]
    return spanning(facts, frozen if is_frozen else other)


def _sorted_runs(facts: Facts, found: Unread) -> tuple[list[I64], list[I64]]:
    """The stretches of forward work of models that never train, and the others that lie in no training forward pass.

    A stretch in which a good part is such a model's is its: what runs with it (double Q-learning) is for the same.
    """
    frozen, other = [], []
    for parts, is_within in zip(_forward_runs(facts.trace, found.runs), found.within, strict=True):
        again = _training_share(facts, found, np.concatenate(parts)) if parts else None
        if again is not None and again <= 1 - _FROZEN:
            frozen += parts
        elif not is_within:
            other += parts
    return frozen, other


def _forward_runs(trace: Trace, runs: Iterable[I64]) -> list[list[I64]]:
    """Per run its parts that multiply matrices, from their first product on, each up to where a tensor is made anew."""
    is_model, fresh = multiplies(trace), trace.named(trace.ops.name, _FRESH)
    parts = (np.split(run, np.flatnonzero(fresh[run])) if is_model[run].any() else [] for run in runs)
    return [[part[np.flatnonzero(is_model[part])[0] :] for part in each if is_model[part].any()] for each in parts]


def with_frames(facts: Facts) -> Facts:
    """The facts with trace and code of the window that has frames, where that is another one."""
    code = facts.code
    if code is not None and code.joined is None and code.beside is not None and facts.trace.again is not None:
        return replace(facts, code=code.beside.code, trace=facts.trace.again)
    return facts


def places_of_forward(facts: Facts) -> dict[str, tuple[PlaceShare, ...]]:
    """By finding, the lines that call this work: of frames that hold nothing else the outermost, in the user's code around it.

    By the window that has frames, and its times; empty without.
    """
    beside = with_frames(facts)
    code, trace = beside.code, beside.trace
    threads = launching_threads(trace) if trace.device_indices else training_threads(trace)
    found = unread(trace, threads) if code is not None and code.joined is not None else None
    if found is None:
        return {}
    frozen, other = _sorted_runs(beside, found)
    kinds = {UNREAD.id: other, FROZEN.id: frozen, NO_GRADIENT.id: _groups(beside, found)}
    return {name: _calling(beside, found, runs) for name, runs in kinds.items()}


def _calling(facts: Facts, found: Unread, runs: list[I64]) -> tuple[PlaceShare, ...]:
    from profkit.timeline.code.callers import callers  # loaded for traces with stacks

    trace, code = facts.trace, facts.code
    if code is None or code.joined is None:
        return ()
    ops = trace.ops
    rows = np.concatenate([np.empty(0, np.int64), *runs])
    trained = (ops.thread, ops.start_ns, found.trained)
    called = callers(trace, code.joined, (ops.thread[rows], ops.start_ns[rows]), trained, ACTING | _EVALUATION)
    spent: dict[CodePlace, list[int]] = {}
    lasts = (ops.end_ns - ops.start_ns)[rows].tolist()
    for place, ns in zip(called, lasts, strict=True):
        if place is not None:
            spent.setdefault(place, []).append(ns)
    total = sum(lasts)
    shares = [
        PlaceShare(place=place, phase=Phase.OTHER, ns=sum(each), share=min(sum(each) / total, 1.0), count=len(each))
        for place, each in spent.items()
        if total and sum(each) >= PLACED * total
    ]
    return tuple(sorted(shares, key=lambda one: -one.ns)[:_MOST_LINES])


def multiplies(trace: Trace) -> Bool:
    """Per operator: whether it multiplies matrices, or one that it calls does."""
    ops = trace.ops
    codes = [code for code in distinct_codes(ops.name).tolist() if family_of(trace.name(code)) in MODEL]
    rows = np.flatnonzero(is_one_of(ops.name, codes))
    tops = outermost(ops)
    around = enclosing_op(ops.take(tops), ops.thread[rows], ops.start_ns[rows])
    out = np.zeros(len(ops), np.bool_)
    out[tops[around[around >= 0]]] = True
    return out


def spanning(facts: Facts, runs: Sequence[I64]) -> Ranges:
    """A range for each run, from the start of its first operator to the end of its last."""
    ops = facts.trace.ops
    first = np.array([run[0] for run in runs], np.int64)
    end = np.array([ops.end_ns[run].max() for run in runs], np.int64)
    return Ranges.of(ops, first, facts.trace.window_ns, end_ns=end)


def _training_share(facts: Facts, known: Unread, rows: I64) -> float | None:
    """The part (0-1) of these operators' time in modules that train in the same steps; None where modules are not known."""
    if facts.code is None:
        return None
    ops, module = facts.trace.ops, facts.code.module_of_op
    rows = rows[module[rows] >= 0]
    lasts = ops.end_ns[rows] - ops.start_ns[rows]
    total = int(lasts.sum())
    if not total:
        return None
    training = is_one_of(module[rows], distinct_codes(module[known.used]).tolist())
    return float(lasts[training].sum() / total)


def is_again(facts: Facts, found: Ranges) -> bool:
    """Whether this forward work is known to be of modules that train in the same steps."""
    known = facts.once(unread_of_step)
    if known is None:
        return False
    rows = np.concatenate([np.empty(0, np.int64), *known.runs])
    rows = rows[Intervals.of(found.start_ns, found.end_ns).contains(facts.trace.ops.start_ns[rows])]
    share = _training_share(facts, known, rows)
    return share is not None and share > 1 - _FROZEN and not _goes_on(facts, known, rows)


def _goes_on(facts: Facts, known: Unread, rows: I64) -> bool:
    """Whether the module that most of this work ends in goes on with gradients: it works on features that do not train."""
    ops, code = facts.trace.ops, facts.code
    if code is None:
        return False
    counted = set(rows.tolist())
    ends = (int(run[-1]) for run, is_lead in zip(known.runs, known.leads, strict=True) if is_lead)
    last = np.array([row for row in ends if row in counted], np.int64)
    if not last.size:
        return False
    used = known.used[np.argsort(ops.start_ns[known.used], kind="stable")]
    behind = used[np.minimum(np.searchsorted(ops.start_ns[used], ops.end_ns[last]), used.size - 1)]
    module = code.module_of_op
    is_same = (module[last] == module[behind]) & (module[last] >= 0)
    return bool(2 * is_same.sum() > last.size)


def kept_of_forward(facts: Facts, found: Ranges) -> float:
    """The share (0-1) of this forward work that may be needed: all, where nobody knows whose it is or what it is for."""
    if _is_evaluation(facts, UNREAD.id) or _is_evaluation(facts, FROZEN.id):
        return 0.0
    return 0.0 if is_again(facts, found) and not _words(facts, UNREAD.id) & ACTING else 1.0


def _is_evaluation(facts: Facts, finding_id: str) -> bool:
    """Whether the lines that call it, or the functions around or called, say that it is an evaluation."""
    return bool(_words(facts, finding_id) & _EVALUATION)


def _words(facts: Facts, finding_id: str) -> set[str]:
    """The words of these lines and functions, each part of a name on its own."""
    return {word for one in facts.once(places_of_forward).get(finding_id, ()) for word in one.place.single_words}


def _freed(facts: Facts, found: Ranges) -> str:
    """What to do first where most of its products make a node, each a number of its own, that no backward pass runs."""
    ops, is_model = facts.trace.ops, multiplies(facts.trace)
    rows = np.flatnonzero(is_model & Intervals.of(found.start_ns, found.end_ns).contains(ops.start_ns))
    numbered = rows[ops.sequence[rows] >= 0]
    has_graph = rows.size > 1 and 2 * distinct(ops.sequence[numbered]).size > rows.size
    return "run it under torch.no_grad(): nobody reads its graph; and " if has_graph else ""


def fix_of_forward(facts: Facts, found: Ranges) -> str:
    """What there is against this forward work, and whether a graph is made for nothing."""
    is_known = kept_of_forward(facts, found) == 0
    return _freed(facts, found) + (UNREAD.fixes[0] if is_known else f"{UNREAD.fixes[0]}; {FROZEN.fixes[0]}")


def fix_of_frozen(facts: Facts, found: Ranges) -> str:
    """The same for a model that never trains."""
    return _freed(facts, found) + FROZEN.fixes[0]


def title_of_forward(facts: Facts, found: Ranges) -> str:
    """What it is: the model that trains, run again, or what nobody knows."""
    return "the model that trains runs again, and no backward pass reads it" if is_again(facts, found) else ""


def without_gradient(facts: Facts) -> Ranges | None:
    """What a training forward pass makes in every step, by the same operators, and no gradient goes through."""
    found = facts.once(unread_of_step)
    if found is None:
        return None
    runs = _groups(facts, found)
    members = {int(run[0]) for run in runs}
    names = facts.trace.ops.name
    keys = {names[run].tobytes() for run in runs}
    for run in found.runs:  # an evaluation makes it as well
        runs += [part for key in keys for part in _parts(names[run], key, run) if int(part[0]) not in members]
    return spanning(facts, [piece for run in runs for piece in _without_gaps(facts.trace.ops, run)])


def _without_gaps(ops: CpuOps, run: I64) -> list[I64]:
    """The run cut where nothing runs for longer than an operator takes to start: hooks, which belong to other work."""
    return np.split(run, np.flatnonzero(ops.start_ns[run[1:]] - ops.end_ns[run[:-1]] > _LONGEST_GAP_NS) + 1)


def _groups(facts: Facts, found: Unread) -> list[I64]:
    """The runs in forward passes that come in every step alike and take nothing of the batch, as far as shapes tell.

    Where the timed steps have no shapes, those of the second window say what takes the batch there. Nor those that the
    capture knows to be others in each step.
    """
    runs, trace = [run for run in _alike(facts, found) if not changes(facts, run)], facts.trace
    if not runs or trace.signatures:
        return _without_batch(trace, found.used, runs)
    again = trace.again
    code = facts.code.beside.code if facts.code is not None and facts.code.beside is not None else None
    there = unread(again, training_threads(again)) if again is not None and again.signatures else None
    if again is None or there is None:
        return []
    known = _alike(replace(facts, code=code, trace=again), there)
    free = {_names(again, run) for run in _without_batch(again, there.used, known)}
    return [run for run in runs if _names(trace, run) in free]


def _names(trace: Trace, run: I64) -> tuple[str, ...]:
    return tuple(map(trace.name, trace.ops.name[run].tolist()))


def _shapes(told: Signature | None) -> list[tuple[int, ...]]:
    """The shapes of the tensors that an operator takes, those of lists one by one."""
    if told is None:
        return []
    each = [told.listed(place) or (told.shape(place),) for place in range(len(told.dims))]
    return [one for part in each for one in part if one]


def _without_batch(trace: Trace, used: I64, runs: list[I64]) -> list[I64]:
    """The runs that take nothing of the shape of the model's inputs, and first nothing with as many rows as it works on."""
    if not runs:
        return []
    is_input = trace.named(trace.ops.name[used], _TAKES_ACTIVATIONS)
    inputs = _first_shapes(trace, used[is_input])
    rows = {one[0] for one in _first_shapes(trace, used)}
    return [run for run in runs if not _is_of_batch(trace, inputs, rows, run)]


def _first_shapes(trace: Trace, rows: I64) -> set[tuple[int, ...]]:
    """Of each operator the shape of the first tensor that it takes, where that has several axes."""
    codes = distinct_codes(trace.ops.signature[rows]).tolist()
    firsts = (next(iter(_shapes(trace.signatures[code])), ()) for code in codes)
    return {one for one in firsts if len(one) > 1}


def _is_of_batch(trace: Trace, inputs: set[tuple[int, ...]], rows: set[int], run: I64) -> bool:
    made = {sizes for row in run.tolist() for sizes in _made(trace, row)}
    taken = [[one for one in _shapes(trace.given(row)) if one not in made] for row in run.tolist()]
    gathers = trace.named(trace.ops.name[run], _GATHERS)
    known = [place for place, each in enumerate(taken) if each]
    # of what is gathered first nobody knows whose rows it has: what works on it tells
    first = next((n for n, place in enumerate(known) if not gathers[place]), len(known))
    told = (one for place in known[: first + 1] for one in taken[place])
    return any(one[0] in rows for one in told) or any(one in inputs for each in taken for one in each)


def _made(trace: Trace, row: int) -> list[tuple[int, ...]]:
    """The shape of what an operator makes of nothing, as its first number or list of numbers says."""
    told = trace.given(row)
    if told is None or not _FRESH.search(trace.name(int(trace.ops.name[row]))):
        return []
    sizes = re.findall(r"\d+", told.text(0))
    return [tuple(map(int, sizes))] if sizes else []


def _alike(facts: Facts, found: Unread) -> list[I64]:
    """The runs in forward passes that come in every step with the same operators and shapes, without random numbers.

    Between operators that a backward node comes back to, or before the first of them in a module that trains.
    """
    trace, ops = facts.trace, facts.trace.ops
    module = facts.code.module_of_op if facts.code is not None else np.full(len(ops), -1, np.int32)
    training = distinct_codes(module[found.used]).tolist()
    is_model, is_random = multiplies(trace), trace.named(ops.name, _CHANGES)
    formats = trace.named(ops.name, _INTO_TEXT)
    again = {int(run[0]) for run in _sorted_runs(facts, found)[0]}
    groups: dict[bytes, list[tuple[NDArray[np.int32], list[I64]]]] = {}
    for run, is_within, leads in zip(found.runs, found.within, found.leads, strict=True):
        mine = run
        if not is_within:  # what comes before the model, as a batch that is moved, is not its
            inside = (module[run] >= 0) & is_one_of(module[run], training)
            at = np.flatnonzero(~inside)
            mine = run[at[-1] + 1 :] if at.size else run
            if not leads or is_model[mine].any():
                continue
        made = ops.sequence[mine]  # of one node and the next: what makes nodes depends on what trains
        if distinct(made[made >= 0]).size > 1 or is_random[mine].any() or again & set(mine.tolist()):
            continue
        if mine.size and distinct_codes(ops.name[mine[formats[mine]]]).size < 2:
            _join(groups.setdefault(ops.name[mine].tobytes(), []), mine, ops.signature[mine])
    low, high = trace.window_ns
    least = _OF_GROUP * (high - low)
    n_steps = max(facts.n_steps, 1)
    kept = []
    for runs in (runs for alike in groups.values() for _, runs in alike):
        spent = sum(int((ops.end_ns[run] - ops.start_ns[run]).sum()) for run in runs)
        n_inside = sum(bool(low <= ops.start_ns[run[0]] < high) for run in runs)
        if spent >= least and n_inside >= n_steps:
            kept += runs
    return kept


def _parts(names: NDArray[np.int32], key: bytes, run: I64) -> Iterator[I64]:
    """The parts of a run with exactly these names, none in another."""
    told, size = names.tobytes(), len(key) // names.itemsize
    at = told.find(key)
    while at >= 0:
        first, rest = divmod(at, names.itemsize)
        if not rest:
            yield run[first : first + size]
        at = told.find(key, at + (1 if rest else len(key)))


def _join(alike: list[tuple[NDArray[np.int32], list[I64]]], run: I64, shapes: NDArray[np.int32]) -> None:
    """Put a run to those whose shapes agree with its own where both are known."""
    for known, runs in alike:
        if ((known == shapes) | (known < 0) | (shapes < 0)).all():
            known[:] = np.maximum(known, shapes)
            runs.append(run)
            return
    alike.append((shapes.copy(), [run]))


def title_without_gradient(facts: Facts, found: Ranges) -> str:
    """The kind's title with the line, where that is known."""
    told = facts.once(places_of_forward).get(NO_GRADIENT.id, ())
    again = "needs no gradient: if it is the same in each step, it can be made once before the loop"
    return f"what {told[0].place.name} calls {again}" if told else ""
