"""Which kernels (on a CPU: operators) the time goes to, by name and by family (docs/method.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.base import Analyzer, Scope, Vendor, scope_of
from profkit.analyzers.tools import kernel_profile, operators, py_spy_operators
from profkit.findings.fusing import fix_of_unfused
from profkit.findings.kernels import LAYOUT, UNFUSED
from profkit.model.arrays import coded, distinct, is_one_of, looked_up
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, NextTool, Skipped
from profkit.model.kernel_names import told
from profkit.model.names import LAYOUT as LAYOUT_FAMILY
from profkit.model.names import MEMORY_FAMILIES, family_of, is_inductors, precision_of, says_nothing, short_name
from profkit.model.table import NO_ROW
from profkit.model.trace import SpanKind
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.timeline.launch_order import LaunchOrder
from profkit.timeline.rates import HALF, rates_of
from profkit.timeline.totals import Work, cpu_work, device_work
from profkit.units import format_count, format_fraction

_MAX_SHOWN = 15
_WORTH_FUSING_NS = 10_000  # CPU operators below this are dispatch, judged elsewhere

_DIFFERENTIATED_TWICE: Final = later(r"BackwardBackward\d*$")
_MATRIX: Final = ("matmul", "convolution", "attention")


class KernelUse(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel or operator name over the window."""

    name: str
    family: str
    count: int
    total_ns: int
    mean_ns: int
    operator: str = ""
    """The innermost operator that launches most of its time; "" on a CPU, and where none is known."""
    typical_launch: int | None = None
    """Launches of the same function before the typical one of this name, in its step, or in the trace without steps;
    None on a CPU, where no step launches it, and for a kernel that is the hottest neither of all nor of its kind."""
    typical_ns: int = 0
    """How long the typical launch takes."""

    def profile(self, scope: Scope, purpose: str, look_for: str) -> NextTool:
        """A profile of its typical launch."""
        launch, lasts_ns = self.typical_launch, self.typical_ns
        return kernel_profile(scope, self.name, purpose, look_for, launch=launch, lasts_ns=lasts_ns)

    @property
    def shown(self) -> str:
        """The name in a sentence, with the operator where it says nothing by itself."""
        short = short_name(self.name)
        return f"{short} ({self.operator})" if self.operator and says_nothing(self.name) else short


class Kernels(msgspec.Struct, frozen=True, kw_only=True):
    """Work by name and family. `fusable_ns` is what fusing runs of memory-bound work could save at most."""

    scope: Scope
    work_ns: int
    """Sum of durations (self times on a CPU), not their union."""
    busy_ns: int
    n_rows: int
    top: tuple[KernelUse, ...]
    by_family: dict[str, int]
    own_matrix_ns: int = 0
    """Of matrix products, convolutions and attention, where the program is not PyTorch's, what no library wrote."""
    fusable_ns: int
    n_runs: int
    layout_count: int = 0
    """Kernels that change the layout of tensors for convolutions."""
    is_compiled: bool = False
    """Whether torch.compile made part of the work."""
    half_name: str = ""
    """The format of half precision that the device has; "" where matrix kernels use it for most of their time."""

    @property
    def layout_ns(self) -> int:
        """Time of kernels that change the layout of tensors for convolutions."""
        return self.by_family.get(LAYOUT_FAMILY, 0)

    @property
    def memory_share(self) -> float:
        """Share of work in families that memory traffic limits, 0-1."""
        return sum(self.by_family.get(family, 0) for family in MEMORY_FAMILIES) / self.work_ns if self.work_ns else 0.0

    @property
    def matrix_share(self) -> float:
        """Share of work in matrix products, convolutions and attention, 0-1."""
        return sum(self.by_family.get(family, 0) for family in _MATRIX) / self.work_ns if self.work_ns else 0.0

    @property
    def tuned_share(self) -> float:
        """The part of it in kernels that may be near the roof: how good those of a program's author are, nobody knows."""
        return self.matrix_share - self.own_matrix_ns / self.work_ns if self.work_ns else 0.0


def measure(facts: Facts) -> Kernels | Skipped:
    """Sum the work by name and family."""
    work = cpu_work(facts) if facts.cpu is not None else device_work(facts)
    if work.name.size == 0:
        return Skipped(
            reason="no kernels or operators in the window",
            how_to_get="profile with activities=[CPU, CUDA] while the job computes",
        )
    names = [facts.trace.name(code) for code in range(int(work.name.max()) + 1)]
    present_codes = distinct(work.name)
    family = {int(code): family_of(names[code]) for code in present_codes}
    by_family: dict[str, int] = {}
    total = np.bincount(work.name, weights=work.duration_ns).astype(np.int64)
    for code in present_codes:
        by_family[family[int(code)]] = by_family.get(family[int(code)], 0) + int(total[code])
    own = [code for code, what in family.items() if what in _MATRIX and not told(names[code]).library]
    is_memory = np.zeros(len(names), np.bool_)
    if work.is_cpu or facts.is_of_torch:  # kernels of other programs are what their authors wrote
        is_memory[[code for code, name in family.items() if name in MEMORY_FAMILIES]] = True
    layout = [int(code) for code in present_codes if family[int(code)] == LAYOUT_FAMILY]
    # nothing fuses these: torch.compile differentiates once
    is_twice = work.is_cpu and any(map(_DIFFERENTIATED_TWICE.search, facts.trace.strings))
    fusable, n_runs = (0, 0) if is_twice else _fusable_ns(work, is_memory[work.name])
    return Kernels(
        scope=scope_of(facts),
        work_ns=int(total.sum()),
        busy_ns=facts.budget.compute,
        n_rows=int(work.name.size),
        top=_top(facts, work, family, total),
        by_family=dict(sorted(by_family.items(), key=lambda item: -item[1])),
        own_matrix_ns=0 if work.is_cpu or facts.is_of_torch else int(total[own].sum()),
        fusable_ns=fusable,
        n_runs=n_runs,
        layout_count=int(np.bincount(work.name)[layout].sum()),
        is_compiled=any(is_inductors(names[code]) for code in present_codes)
        or bool((facts.trace.spans.kind == SpanKind.COMPILED).any()),
        half_name=_half_name(facts, {names[code]: int(total[code]) for code in present_codes}),
    )


def _half_name(facts: Facts, ns_by_name: Mapping[str, int]) -> str:
    """The device's format of half precision; "" if it computes slower in it, or has most matrix-kernel time in one."""
    formats = {name: made for name in ns_by_name if (made := precision_of(name)) is not None}
    half_ns = sum(ns_by_name[name] for name in formats if formats[name] in HALF)
    if 2 * half_ns > sum(map(ns_by_name.__getitem__, formats)):
        return ""
    rates = rates_of(facts.trace, facts.main_device.device) if facts.main_device is not None else None
    if rates is None:
        return "bfloat16"
    return rates.half_name if rates.half > 1 else ""


def _rows(facts: Facts, _: Kernels) -> Mapping[str, Rows]:
    """The work of the families that a finding is about."""
    work = cpu_work(facts) if facts.cpu is not None else device_work(facts)
    family = {code: family_of(facts.trace.name(code)) for code in distinct(work.name).tolist()}
    found = {}
    for kind, families in ((UNFUSED, MEMORY_FAMILIES), (LAYOUT, (LAYOUT_FAMILY,))):
        mine = is_one_of(work.name, [code for code, name in family.items() if name in families])
        found[kind.id] = (
            Rows(thread=work.lane[mine].astype(np.int32), at_ns=work.at_ns[mine], ns=work.duration_ns[mine])
            if work.is_cpu
            else Rows.of_calls(facts.trace, work.launch[mine], work.duration_ns[mine])
        )
    return found


def _top(facts: Facts, work: Work, family: dict[int, str], total: NDArray[np.int64]) -> tuple[KernelUse, ...]:
    counts = np.bincount(work.name)
    ranked = [int(code) for code in np.argsort(-total, kind="stable")[:_MAX_SHOWN] if counts[code]]
    main = facts.main_device
    order = LaunchOrder(facts.trace, main.device) if main is not None and facts.cpu is None else None
    # those that a next tool may name: the hottest, and the hottest that memory limits
    wanted = {*ranked[:1], *[code for code in ranked if family[code] in MEMORY_FAMILIES][:1]}
    typical = {code: order.typical(code) if order is not None and code in wanted else None for code in ranked}
    operator = _operators(facts, work, ranked)
    return tuple(
        KernelUse(
            name=facts.trace.name(code),
            family=family[code],
            count=int(counts[code]),
            total_ns=int(total[code]),
            mean_ns=int(total[code] // counts[code]),
            operator=operator[code],
            typical_launch=None if launch is None else launch.before,
            typical_ns=0 if launch is None else launch.duration_ns,
        )
        for code, launch in typical.items()
    )


def _operators(facts: Facts, work: Work, codes: Sequence[int]) -> dict[int, str]:
    """The operator that launches most of the time of each of these kernels, "" where none is known."""
    if work.is_cpu or facts.op_of_call.size == 0:
        return dict.fromkeys(codes, "")
    place = np.full(int(work.name.max()) + 1, NO_ROW, np.int64)
    place[codes] = np.arange(len(codes))
    of_kernel = place[work.name]
    op = looked_up(facts.op_of_call, work.launch, NO_ROW)
    known = np.flatnonzero((of_kernel >= 0) & (op >= 0))
    if known.size == 0:
        return dict.fromkeys(codes, "")
    names, which = coded(facts.trace.ops.name[op[known]].astype(np.int64))
    shape = len(codes), names.size
    pair = of_kernel[known] * names.size + which
    count = np.bincount(pair, minlength=len(codes) * names.size).reshape(shape)
    time = np.bincount(pair, weights=work.duration_ns[known], minlength=len(codes) * names.size).reshape(shape)
    # of names that launch it, the first with most time
    most = np.where(count > 0, time, -1).argmax(axis=1)
    return {code: facts.trace.name(int(names[most[k]])) if count[k].any() else "" for k, code in enumerate(codes)}


def _fusable_ns(work: Work, is_memory: NDArray[np.bool_]) -> tuple[int, int]:
    """(What fusing could save at most, number of runs).

    A run is a stretch of memory-bound work of one step on one stream with nothing else between. Fused, it must still move what its
    largest member moves: it cannot become shorter than that member.
    """
    keep = work.duration_ns >= _WORTH_FUSING_NS if work.is_cpu else np.ones(work.name.size, np.bool_)
    order = np.flatnonzero(keep)[np.argsort(work.lane[keep], kind="stable")]
    flag, lane, duration = is_memory[order], work.lane[order], work.duration_ns[order]
    step = work.step[order]
    if not flag.any():
        return 0, 0
    begins = flag.copy()
    begins[1:] &= ~flag[:-1] | (lane[1:] != lane[:-1]) | (step[1:] != step[:-1])
    run = np.cumsum(begins)[flag] - 1
    total = np.bincount(run, weights=duration[flag]).astype(np.int64)
    longest = np.zeros(total.size, np.int64)
    np.maximum.at(longest, run, duration[flag])
    return int((total - longest).sum()), int(total.size)


def judge(result: Kernels) -> tuple[Finding, ...]:
    """`kernel.unfused` and `kernel.layout`."""
    return (*_unfused(result), *_layout(result))


def _layout(result: Kernels) -> Iterator[Finding]:
    """`kernel.layout` where convolutions bring their tensors from one layout to the other and back."""
    scope = result.scope
    saved = min(result.layout_ns, result.busy_ns)
    fraction = scope.fraction(saved)
    if result.layout_ns < LAYOUT.limit("work") * result.work_ns or fraction < LAYOUT.limit("window"):
        return
    rocm = ", with PYTORCH_MIOPEN_SUGGEST_NHWC=1" if scope.vendor is Vendor.AMD else ""
    yield LAYOUT.found(
        confidence=0.7,
        recoverable_ns=scope.per_step(saved),
        fraction=fraction,
        evidence=(
            Evidence.time(
                "kernels.layout_ns",
                result.layout_ns,
                f"kernels that convert between NCHW and NHWC take {scope.time(result.layout_ns)}"
                f", {format_fraction(result.layout_ns / result.work_ns)} of kernel time"
                f" ({format_count(result.layout_count / scope.n_steps)} of them {scope.each})",
                expected=f"< {format_fraction(LAYOUT.limit('work'))} of kernel time",
            ),
        ),
        fix="keep model and batches in channels_last (.to(memory_format=torch.channels_last))" + rocm
        if scope.is_of_torch
        else "keep arrays in NHWC from the input to the output, if the framework has that order",
        proof="" if scope.is_of_torch else "Run it in NHWC: the conversion kernels disappear.",
        next_tools=(
            operators(
                scope,
                "which layers convert, and with which shapes?",
                "the operators that launch nchwToNhwc and nhwcToNchw kernels, and their shapes",
                flags="--shapes",
            ),
        )
        if scope.is_of_torch
        else (),
    )


def _unfused(result: Kernels) -> Iterator[Finding]:
    """`kernel.unfused` where memory-bound families hold much of the work and fusing could save some of it."""
    scope = result.scope
    saved = min(result.fusable_ns, result.busy_ns)
    fraction = scope.fraction(saved)
    if (
        result.memory_share < UNFUSED.limit("memory")
        or scope.fraction(result.busy_ns) < UNFUSED.limit("busy")
        or fraction < UNFUSED.limit("saved")
    ):
        return
    memory = [use for use in result.top if use.family in MEMORY_FAMILIES]
    named = ", ".join(use.shown for use in memory[:3])
    what = "operators" if scope.is_cpu else "kernels"
    times = [(use.name, scope.per_step(use.total_ns)) for use in memory]
    fix, proof = fix_of_unfused(
        times, each=scope.each, half_name=result.half_name, is_compiled=result.is_compiled, is_cpu=scope.is_cpu
    )
    tool = (
        py_spy_operators(scope.command)
        if scope.is_cpu or not memory
        else memory[0].profile(
            scope,
            "does this kernel reach the memory bandwidth limit?",
            "memory throughput above 80 % of peak, compute throughput far below",
        )
    )
    yield UNFUSED.found(
        title=f"elementwise, norm and reduction {what} take much of the {'CPU' if scope.is_cpu else 'GPU'} time",
        confidence=0.7,
        recoverable_ns=scope.per_step(saved),
        fraction=fraction,
        evidence=(
            Evidence.share(
                "kernels.memory_share",
                result.memory_share,
                f"{format_fraction(result.memory_share)} of {what[:-1]} time is in {what} limited by memory bandwidth,"
                f" {format_fraction(result.matrix_share)} in matrix products",
                expected=f"< {format_fraction(UNFUSED.limit('memory'))}",
            ),
            Evidence.time(
                "kernels.fusable_ns",
                result.fusable_ns,
                f"these {what} run in {format_count(result.n_runs / scope.n_steps)}"
                f" group{'' if result.n_runs == scope.n_steps else 's'} {scope.each}, one right after another; fusing each"
                f" group saves at most {scope.time(saved)}",
            ),
            Evidence.time("kernels.top_memory_ns", sum(use.total_ns for use in memory[:3]), f"most time: {named}"),
        ),
        fix=fix,
        proof=proof,
        next_tools=(tool,),
    )


def present(result: Kernels) -> Section:
    """Show kernels (or operators) and families."""
    label = "operator (self time)" if result.scope.is_cpu else "kernel"
    by = {"launched by": "text"} if any(use.operator for use in result.top) else {}
    return Section(
        title="operators" if result.scope.is_cpu else "kernels",
        values={
            "n_rows": result.n_rows,
            "work_ns": result.work_ns,
            "memory_share": result.memory_share,
            "matrix_share": result.matrix_share,
            "fusable_ns": result.fusable_ns,
            "by_family_ns": dict(result.by_family),
        },
        tables=(
            TableView.of(
                "top operators" if result.scope.is_cpu else "top kernels",
                {
                    label: "text",
                    "family": "text",
                    "count": "count",
                    "total": "ns",
                    "mean": "ns",
                    "share": "fraction",
                    **by,
                },
                (
                    (
                        use.name,
                        use.family,
                        use.count,
                        use.total_ns,
                        use.mean_ns,
                        use.total_ns / result.work_ns if result.work_ns else 0.0,
                        *((use.operator or "-",) if by else ()),
                    )
                    for use in result.top
                ),
            ),
        ),
    )


ANALYZER = Analyzer(
    name="kernels",
    question="which kernels does the time go to?",
    needs="kernel rows, or operators on a CPU",
    measure=measure,
    judge=judge,
    rows=_rows,
    present=present,
)
