"""Backward passes that go through the same graph again: losses that share layers, inputs of one output, rows of a Jacobian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.patterns.dropped import places_of_passes
from profkit.analyzers.patterns.forward import spanning
from profkit.analyzers.patterns.passes import Passes, passes_again
from profkit.analyzers.patterns.ranges import Ranges
from profkit.findings.again import BACKWARD_AGAIN, ROWS_APART
from profkit.model.arrays import I64, Bool, distinct, is_member, is_one_of, rows_by_value
from profkit.model.code import PlaceShare
from profkit.model.trace import Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.host import BACKWARD_NODE

_ONES: Final = later(r"^aten::ones(?:_like)?$")
_ONES_LIKE: Final = later(r"^aten::ones_like$")
_SUMS: Final = later(rf"^{BACKWARD_NODE}: (?:Sum|Mean)Backward\d*$")
_PICKS: Final = later(rf"^{BACKWARD_NODE}: (?:Select|Slice|Index|Unbind|Split\w*|Squeeze|View|Alias)Backward\d*$")
_MANY: Final = later(rf"^{BACKWARD_NODE}: (?:Unbind|Split\w*)Backward\d*$")
_ONE_OUTPUT: Final = later(
    rf"^{BACKWARD_NODE}: (?:Add\w*|R?[Ss]ub|Mul|Div|Neg|Pow|Sqrt|Exp|Log|Sin|Cos|Tanh|Sigmoid|Silu|Gelu|Softplus|Relu|Mm|Bmm"
    r"|Baddbmm|MkldnnLinear|Linear|Convolution|Sum|Mean|Squeeze|Unsqueeze|View|UnsafeView|Select|Slice|Index|T|Transpose)"
    r"Backward\d*$"
)
"""Nodes of operators with one result: passes that begin at another may begin at other results of it, as of unbind."""
_KEPT: Final = 0.5
_KEPT_WITH_GRAPH: Final = 0.7
"""What a batch of rows takes of the time of one after another. Measured on one CPU, nodes of up to 16 us: 0.38 to 0.67 of
8 rows, 0.17 to 0.54 of 32; with create_graph=True 0.69 to 0.90 of 8, 0.50 to 0.87 of 16."""

_ONE_BY_ONE: Final = "backward passes go through the same layers, one for each loss"
_BY_INPUT: Final = "calls of torch.autograd.grad go through the same layers, one for each input of an output"
_BY_TASK: Final = "losses' gradients through the layers that they share, in a call for each"
_ROW_BY_ROW: Final = "calls of torch.autograd.grad take the gradient of an output element by element"


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """What runs again, places in `Passes`."""

    found: Passes
    added: I64
    """Nodes whose gradients are added up: one pass for the sum of the losses would do."""
    asked: I64
    """Those of an output whose gradient for other inputs an earlier call took, and copies of nodes that they made."""
    rows: list[I64]
    """The passes for one output after another, rows of `Trace.ops`."""
    times: int = 1
    """How often a node runs at most where one pass would do."""
    of_tasks: I64
    """Nodes that the gradients of several losses share, none of which is stored."""
    n_tasks: int = 0
    n_rows: int = 0
    kept: float = 1.0

    @property
    def spared(self) -> I64:
        """All that one pass would not run."""
        return distinct(np.concatenate((self.added, self.asked)))

    @property
    def called(self) -> I64:
        """These without copies of nodes, which a later pass runs whoever calls it."""
        spared = self.spared
        own = spared[self.found.made_at[spared] < 0]
        return own if own.size else spared

    def by_passes(self, places: I64) -> list[I64]:
        """The rows of `Trace.ops` of these, by passes."""
        return [self.found.rows[part] for part in np.split(places, np.flatnonzero(np.diff(self.found.at[places])) + 1)]

    @property
    def nodes_of_rows(self) -> list[I64]:
        """The nodes alone of passes for one output after another."""
        return [part[is_member(part, self.found.rows)] for part in self.rows]

    @property
    def title(self) -> str:
        """How often, and whether losses or inputs are taken one by one."""
        if self.added.size >= self.asked.size:
            return f"{self.times} {_ONE_BY_ONE}"
        return f"{self.times} {_BY_INPUT}"

    @property
    def fix(self) -> str:
        """One sum of the losses, or one call for all inputs; first what spares more."""
        parts = sorted(zip((-self.added.size, -self.asked.size), BACKWARD_AGAIN.fixes, strict=True))
        return "; ".join(fix for size, fix in parts if size)


def again_of(trace: Trace) -> Again | None:
    """The work of a trace that goes through the same graph again."""
    found = passes_again(trace)
    if found is None:
        return None
    each = np.split(np.arange(found.rows.size), np.flatnonzero(np.diff(found.at)) + 1)
    added, n_added = _added(found, each)
    asked, n_asked = _asked(found, each)
    rows, n_rows, kept = _rows(found, each, asked)
    of_tasks, n_tasks = _of_tasks(
        found, each, distinct(_joined([asked, np.flatnonzero(is_member(found.rows, np.sort(_joined(rows))))]))
    )
    return Again(
        found=found,
        added=added,
        asked=asked,
        rows=rows,
        times=max(n_added, n_asked),
        of_tasks=of_tasks,
        n_tasks=n_tasks,
        n_rows=n_rows,
        kept=kept,
    )


def _behind(found: Passes, mine: I64, is_again: Bool) -> Bool:
    """Those and the nodes without a number right behind each: they store its gradient."""
    last = np.maximum.accumulate(np.where(found.key[mine] >= 0, np.arange(mine.size), -1))
    return np.where(last >= 0, is_again[np.maximum(last, 0)], False)


def _joined(parts: list[I64]) -> I64:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _added(found: Passes, each: list[I64]) -> tuple[I64, int]:
    seen, runs = np.full(found.key.max() + 1, -1), np.zeros(found.key.max() + 1, np.int64)
    parts, times, extra, before = [], 1, 0, -1
    for number, mine in enumerate(each):
        if not found.stores[mine].any():
            continue
        extra += int(found.group[number] != before)
        before = int(found.group[number])
        keys = found.key[mine]
        known = np.maximum(keys, 0)
        is_again = _behind(found, mine, (keys >= 0) & (seen[known] == extra))
        stores = is_again & found.stores[mine]
        numbered = keys[keys >= 0]
        if is_again.any() and (not stores.any() or not found.adds[mine[stores]].all() or _is_of(found, mine, each)):
            extra, is_again = extra + 1, np.zeros_like(is_again)  # cleared between, or another's gradient
        runs[numbered] = np.where(seen[numbered] == extra, runs[numbered] + 1, 1)
        seen[numbered] = extra
        if is_again.any():
            parts.append(mine[is_again])
            times = max(times, int(runs[numbered].max()))
    return _joined(parts), times


def _is_of(found: Passes, mine: I64, each: list[I64]) -> bool:
    """Whether a pass goes through nodes that another, which stores gradients, made: it takes a gradient's gradient."""
    made = found.made_at[mine]
    return any(bool(found.stores[each[one]].any()) for one in distinct(found.at[made[made >= 0]]).tolist())


def _n_asked(found: Passes, each: list[I64]) -> I64:
    """How often each node runs in passes that store no gradient."""
    places = _joined([mine for mine in each if not found.stores[mine].any()])
    return np.bincount(found.key[places][found.key[places] >= 0], minlength=int(found.key.max()) + 1)


def _head(found: Passes, mine: I64, n_runs: I64) -> tuple[I64, I64]:
    """The nodes of such a pass that no other runs, up to the first that another does, and the others."""
    keys = found.key[mine]
    is_shared = (keys >= 0) & (n_runs[np.maximum(keys, 0)] > 1)
    first = int(np.flatnonzero(is_shared)[0]) if is_shared.any() else mine.size
    return mine[:first], mine[first:]


def _asked(found: Passes, each: list[I64]) -> tuple[I64, int]:
    """Passes from the same output with the same gradient, ones, and what a later pass runs of both of their graphs."""
    trace, ops = found.trace, found.trace.ops
    is_sum, is_ones, is_like, is_one = (trace.named(ops.name, one) for one in (_SUMS, _ONES, _ONES_LIKE, _ONE_OUTPUT))
    n_runs = _n_asked(found, each)
    first: dict[tuple[int, int, tuple[int, ...]], int] = {}
    parts, twins, times = [], dict[int, int](), 1
    counts: dict[int, int] = {}
    for number, mine in enumerate(each):
        head, body = _head(found, mine, n_runs)
        last, before = int(found.last_other[number]), int(found.rows[mine[0] - 1]) if mine[0] else -1
        if found.stores[mine].any() or not body.size or not is_sum[found.rows[head]].all():
            continue
        # ones that were made before the pass before as well: of a kind that is made for one output
        if last < 0 or not (is_ones if last > before else is_like)[last] or not is_one[found.rows[body[0]]]:
            continue
        root = (int(found.group[number]), int(found.key[body[0]]), tuple(ops.name[found.rows[head]].tolist()))
        other = first.setdefault(root, number)
        if other != number:
            shared = is_one_of(found.key[mine], found.key[each[other]][found.key[each[other]] >= 0].tolist())
            parts.append(mine[shared])
            twins[number] = other
            counts[other] = counts.get(other, 1) + 1
            times = max(times, counts[other])
    asked = _joined(parts)
    return (np.sort(_joined([asked, _copies(found, each, asked, twins)])), times) if asked.size else (asked, 1)


def _copies(found: Passes, each: list[I64], asked: I64, twins: dict[int, int]) -> I64:
    """Nodes that such a pass made a second time, in passes that run the first ones as well."""
    is_asked = np.zeros(found.rows.size, np.bool_)
    is_asked[asked] = True
    parts: list[I64] = []
    for mine in each:
        made = found.made_at[mine]
        of_pass = np.where(made >= 0, found.at[made], -1)
        is_copy = (made >= 0) & is_asked[made]
        copied = (one for one in distinct(of_pass[is_copy]).tolist() if twins[one] in of_pass)
        parts += [mine[is_copy & (of_pass == one)] for one in copied]
    return _joined(parts)


def _rows(found: Passes, each: list[I64], asked: I64) -> tuple[list[I64], int, float]:
    """Passes that differ in which element of one tensor they begin with, each from where that is picked, but the first."""
    trace, ops = found.trace, found.trace.ops
    is_sum, is_pick, is_many = (trace.named(ops.name, one) for one in (_SUMS, _PICKS, _MANY))
    n_runs = _n_asked(found, each)
    known = set(found.at[asked].tolist())
    of: dict[tuple[int, int, tuple[int, ...]], list[int]] = {}
    for number, mine in enumerate(each):
        head, body = _head(found, mine, n_runs)
        rows = found.rows[head]
        if number in known or found.stores[mine].any() or not body.size:
            continue
        if (is_sum | is_pick)[rows].all() and (is_pick[rows].any() or is_many[found.rows[body[0]]]):
            root = (int(found.group[number]), int(found.key[body[0]]), tuple(ops.name[rows].tolist()))
            of.setdefault(root, []).append(number)
    parts, kept, n_rows = [], _KEPT, 0
    for passes in of.values():
        places = _joined([each[one] for one in passes])
        has_graph = bool(np.isin(found.made_at, places).any())
        limit = ROWS_APART.limit("with_graph" if has_graph else "each")
        if len(passes) >= ROWS_APART.limit("rows") and _usual_ns(found, places) <= limit:
            parts += [_with_pick(found, each[one]) for one in passes[1:]]
            copies = np.flatnonzero(is_member(found.made_at, _joined([each[one] for one in passes[1:]])))
            parts += [found.rows[part] for part in _runs(found, copies)]
            n_rows, kept = max(n_rows, len(passes)), max(kept, _KEPT_WITH_GRAPH if has_graph else _KEPT)
    return parts, n_rows, kept


def _of_tasks(found: Passes, each: list[I64], said: I64) -> tuple[I64, int]:
    """Nodes that several losses' gradients go through in calls of their own, and the most losses of which one does.

    Not of gradients of gradients, nor of those that a later pass goes through, and of no call that is said already.
    """
    known, used = set(found.at[said].tolist()), set(found.at[found.made_at[found.made_at >= 0]].tolist())
    n_runs = _n_asked(found, each)
    by_group: dict[int, list[I64]] = {}
    for number, mine in enumerate(each):
        is_plain = number not in known | used and not found.stores[mine].any() and (found.made_at[mine] < 0).all()
        head, body = _head(found, mine, n_runs)
        if is_plain and head.size and (found.made[mine[found.key[mine] >= 0]] >= 0).all():
            by_group.setdefault(int(found.group[number]), []).append(body[found.key[body] >= 0])
    parts, most = [], 0
    for bodies in by_group.values():
        places = _joined(bodies)
        n_times = np.bincount(found.key[places], minlength=n_runs.size)
        shared = places[n_times[found.key[places]] > 1]
        parts.append(shared)
        most = max(most, int(n_times.max(initial=0)))
    return np.sort(_joined(parts)), most


def _usual_ns(found: Passes, places: I64) -> float:
    """How long a node takes, ns: the mean of their medians, since some wait for a core."""
    ops = found.trace.ops
    lasts = (ops.end_ns - ops.start_ns)[found.rows[places]]
    return float(np.mean([np.median(lasts[mine]) for key, mine in rows_by_value(found.key[places]) if key >= 0]))


def _with_pick(found: Passes, mine: I64) -> I64:
    """The rows of a pass with what made its first nodes since the pass before, or its first gradient."""
    ops = found.trace.ops
    number = int(found.at[mine[0]])
    before = int(found.rows[mine[0] - 1]) if mine[0] else -1
    made = found.made[mine]
    rows = np.concatenate(
        (made[(made > before) & (ops.start_ns[made] >= ops.end_ns[before])], found.last_other[[number]])
    )
    return np.sort(np.concatenate((rows[rows > before], found.rows[mine])))


def _runs(found: Passes, places: I64) -> list[I64]:
    """These places cut where another node, or another pass, comes between on their thread."""
    parts: list[I64] = []
    for _, of_thread in rows_by_value(found.trace.ops.thread[found.rows[places]]):
        mine = np.sort(places[of_thread])
        parts += np.split(mine, np.flatnonzero((np.diff(mine) > 1) | (np.diff(found.at[mine]) > 0)) + 1)
    return [part for part in parts if part.size]


def _of_window(facts: Facts) -> Again | None:
    return again_of(facts.trace)


def _stretches(facts: Facts, found: Passes, places: I64) -> Ranges:
    """These nodes with nothing else between as a range each, pass by pass."""
    return spanning(facts, [found.rows[part] for part in _runs(found, places)])


def backward_again(facts: Facts) -> Ranges | None:
    """What one pass, or one call, in place of several would not run."""
    seen = facts.once(_of_window)
    return None if seen is None else _stretches(facts, seen.found, seen.spared)


def rows_apart(facts: Facts) -> Ranges | None:
    """Calls that take gradients row by row."""
    seen = facts.once(_of_window)
    return None if seen is None else spanning(facts, seen.rows)


def task_gradients(facts: Facts) -> Ranges | None:
    """What the gradients of several losses go through, each by itself."""
    seen = facts.once(_of_window)
    return None if seen is None else _stretches(facts, seen.found, seen.of_tasks)


def title_of_tasks(facts: Facts, _: Ranges) -> str:
    """How many losses that are."""
    seen = facts.once(_of_window)
    return f"torch.autograd.grad takes {seen.n_tasks} {_BY_TASK}" if seen is not None else ""


def title_of_again(facts: Facts, _: Ranges) -> str:
    """How often, and whether losses or inputs are taken one by one."""
    seen = facts.once(_of_window)
    return seen.title if seen is not None else ""


def fix_of_again(facts: Facts, _: Ranges) -> str:
    """One sum of the losses, or one call for all inputs."""
    seen = facts.once(_of_window)
    return seen.fix if seen is not None else BACKWARD_AGAIN.fixes[0]


def title_of_rows(facts: Facts, _: Ranges) -> str:
    """How many calls that are."""
    seen = facts.once(_of_window)
    return f"{seen.n_rows} {_ROW_BY_ROW}" if seen is not None else ""


def kept_of_rows(facts: Facts, _: Ranges) -> float:
    """The share (0-1) that a batch of rows takes of the time."""
    seen = facts.once(_of_window)
    return seen.kept if seen is not None else 1.0


def places_of_again(facts: Facts) -> tuple[PlaceShare, ...]:
    """The lines that call all passes through a node that runs again."""
    return places_of_passes(facts, lambda trace: _known(trace, lambda seen: seen.by_passes(seen.called)))


def places_of_rows(facts: Facts) -> tuple[PlaceShare, ...]:
    """The lines that call the passes of these rows."""
    return places_of_passes(facts, lambda trace: _known(trace, lambda seen: seen.nodes_of_rows))


def places_of_tasks(facts: Facts) -> tuple[PlaceShare, ...]:
    """The lines that take these losses' gradients."""
    return places_of_passes(facts, lambda trace: _known(trace, lambda seen: seen.by_passes(seen.of_tasks)))


def _known(trace: Trace, passes: Callable[[Again], list[I64]]) -> list[I64]:
    seen = again_of(trace)
    return [one for one in passes(seen) if one.size] if seen is not None else []
