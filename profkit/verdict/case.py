"""What a verdict looks at, and the shares at which it changes."""

from __future__ import annotations

from typing import Final

import msgspec

from profkit.analyzers.base import Scope
from profkit.findings import kind_of
from profkit.findings.chores import EVERY_METRIC
from profkit.findings.ranks.stragglers import RARE_WORK
from profkit.findings.whole_run import DECOMPOSES, RARE, RARE_INPUT, RECOPIES, REST_METRIC, SINKS, SLOWS
from profkit.model.budget import WORK_PARTS, Budget
from profkit.model.code import PlaceShare
from profkit.model.documents.report import Bottleneck
from profkit.model.finding import SEVERITY_FROM, Finding, NextTool, Severity

DOMINANT: Final = SEVERITY_FROM[Severity.HIGH]
"""A cause with this share of the window is the bottleneck, whatever the rest does."""
DOMINANT_ON_CPU: Final = 0.08
"""The same where the CPU is the device: the best on docs/accuracy.md, which tries it on families it never saw."""
MOSTLY_WORK: Final = 0.5
"""Below that share of compute one cannot call a trace kernel-bound."""
NEARLY_ALL_WORK: Final = 0.75
"""From that share of compute on, the work is the bottleneck, and other causes are findings beside it (chosen: what is
left can give 1.33x at most)."""
NEARLY_ALL_BESIDE_HOST: Final = 2 / 3
"""The same beside late launches, waits for the GPU and copies. Chosen with the answers of public captures' readers in
view, who accept compute as the bottleneck from there on. A batch made elsewhere saves its wait: input keeps 75 %."""
NEARLY_ALL_WORK_ON_CPU: Final = 0.85
"""The same where the CPU is the device: the best on docs/accuracy.md, which tries it on families it never saw."""
_IDLES: Final = (Bottleneck.OVERHEAD, Bottleneck.SYNC)
"""Causes that win idle time alone: beside them communication and copies are work as well. Chosen with one public
capture in view."""
UNEXPLAINED: Final = 0.3
"""Idle time of unknown or unresolved cause at which no verdict stands (chosen: twice the dominant share)."""
HEALTHY_WORK: Final = 0.8
HEALTHY_MATRIX: Final = 0.5
"""Chosen: the healthy workload shows 0.94 on a CPU; below 0.8 something else is worth a look."""
MANY_GAPS: Final = 0.05
"""Chosen: as the severity "medium"; one to two us lie between queued kernels, which then last 40 us or less."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the verdict looks at: of one rank, or of all with the budget of a usual one."""

    budget: Budget
    step_ns: int | None
    n_steps: int
    findings: tuple[Finding, ...]
    failed_checks: tuple[str, ...]
    refusals: tuple[str, ...]
    confidence_cap: float
    is_cpu: bool
    matrix_share: float | None
    """Of the work, products of matrices, convolutions and attention; without PyTorch only what a library wrote."""
    hottest_kernel_tool: NextTool | None
    scope: Scope
    is_unlinked: bool
    """Whether most device rows have no launch call: the host side was not recorded."""
    rank: int | None
    source: str
    turnaround_fraction: float = 0.0
    """Of the window, in gaps between operations that had been issued in time."""
    instead: NextTool | None = None
    """What to run where the capture cannot carry a verdict, if not a new capture."""
    skipped: frozenset[str] = frozenset()
    """The analyzers that could not look: what they would have found is not ruled out."""
    not_ruled_out: frozenset[str] = frozenset()
    """The analyzers whose cause costs more, or holds the host for longer, than its part of the budget tells."""
    apart: float = 0.0
    """Of the window (0-1), start-up and single stalls: the verdict is on what lies beside them."""
    unknown_apart: float = 0.0
    """The part of it of which nobody knows what it is: it may come back."""
    is_steady: bool = True
    """Whether what lies beside them repeats, so that it shows how the job goes on."""
    small_work: float = 0.0
    """Of the window, on a CPU: what operators compute that are so small that most of each is its fixed cost."""
    notes: tuple[str, ...] = ()
    """What else one should know before believing the verdict."""
    slows: str = ""
    """That the run becomes slower, by how much, where nothing says why; "" elsewhere."""
    later: NextTool | None = None
    """What would show why."""
    hottest: str = ""
    """The kernel, or on a CPU the operator, that takes most of their time, with its share."""
    busiest: PlaceShare | None = None
    """The line of the user's with most of the work, with its share of the window; None where no line has much."""
    question: Finding | None = None
    """That line as a finding that asks whether its work is needed; it leads where nothing else explains as much."""
    meanwhile: str = ""
    """What the host does where the capture allows no verdict; "" where that is not known."""
    at_roof: str = ""
    """What the step takes with all work at the device's peaks, as a clause; "" where that is not known."""
    slow_products: str = ""
    """On a CPU, that products with much of the time are far slower than others, as a clause; "" elsewhere."""
    is_alone: bool = True
    """Whether it is one rank's case, without what the other ranks' traces would tell."""

    @property
    def dominant(self) -> float:
        """The share of the window from which a cause is the bottleneck."""
        return DOMINANT_ON_CPU if self.is_cpu else DOMINANT

    def beside(self, share: float) -> float:
        """A share of the window as that of the window without start-up and single stalls."""
        return min(share / (1 - self.apart), 1.0) if self.apart < 1 else 0.0

    @property
    def rare_ns(self) -> int:
        """What rare steps, and steps that grow, add to the mean step, in the time of recorded ones."""
        added = (RARE.id, DECOMPOSES.id, RARE_WORK.id, RARE_INPUT.id, RECOPIES.id, SINKS.id, SLOWS.id)
        return sum(one.recoverable_ns for one in self.findings if one.id in added or one.has(EVERY_METRIC)) + round(
            sum(item.value for one in self.findings for item in one.evidence if item.metric == REST_METRIC)
        )

    @property
    def compute(self) -> float:
        """The share of compute beside start-up and single stalls, and beside what only the whole run shows."""
        return self._of_run("compute")

    def is_nearly_all_work(self, cause: Finding | None) -> bool:
        """Whether the work is the bottleneck beside that cause, whatever share the cause has."""
        kind = kind_of(cause.id) if cause is not None else None
        if self.is_cpu:
            return self.compute >= NEARLY_ALL_WORK_ON_CPU
        # what only the whole run shows, a save every so many steps, is no launch that is late
        if kind is None or kind.is_of_run or kind.bottleneck not in (*_IDLES, Bottleneck.COPY):
            return self.compute >= NEARLY_ALL_WORK
        is_busy = kind.bottleneck in _IDLES and self.is_alone and self._of_run(*WORK_PARTS) >= NEARLY_ALL_WORK
        return self.compute >= (MOSTLY_WORK if is_busy else NEARLY_ALL_BESIDE_HOST)

    def _of_run(self, *parts: str) -> float:
        """What these parts have beside start-up and single stalls, and beside what only the whole run shows."""
        rare = sum(one.fraction for one in self.findings if kind_of(one.id).is_of_run)
        return self.beside(sum(map(self.budget.fraction, parts))) * max(1 - rare, 0.0)
