"""The budget of a window: its parts, and what each is called wherever a part is printed."""

from __future__ import annotations

from typing import Final

import msgspec

_IDLE_FOR: Final = "idle for "


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The words for one part: `label` beside a number, `words` in a sentence; `cpu` is both where a CPU is the device.

    `column` is the label where many parts share the width of a table.
    """

    label: str
    words: str
    cpu: str = ""
    column: str = ""
    is_work: bool = False
    """Whether the device works in it; else it is idle."""


PARTS: Final = {
    "compute": Part(label="compute", words="compute", is_work=True),
    "comm_exposed": Part(label="exposed comm", words="exposed communication", is_work=True),
    "copy_exposed": Part(label="exposed copies", words="exposed copies", is_work=True),
    "idle_data": Part(label="data", words="waiting for data"),
    "idle_sync": Part(label="sync", words="idle after synchronisation"),
    "idle_launch": Part(label="launch", words=_IDLE_FOR + "late launches", cpu="dispatch (estimated)", column="launch"),
    "idle_host": Part(
        label="other host work", words=_IDLE_FOR + "other host work", cpu="between operators", column="host"
    ),
    "idle_dependency": Part(label="dependency", words=_IDLE_FOR + "dependencies"),
    "idle_unknown": Part(label="unknown", words="idle, cause unknown", cpu="not recorded"),
}
"""By the names of the contract, in its order."""
WORK_PARTS: Final = tuple(name for name, part in PARTS.items() if part.is_work)
IDLE_PARTS: Final = tuple(name for name, part in PARTS.items() if not part.is_work)
HOST_PARTS: Final = ("idle_launch", "idle_host")
"""Waiting for a host that neither waits for data nor for the device."""


def label(name: str, *, is_cpu: bool) -> str:
    """What stands for a part in the legend of a bar or the first column of a table."""
    part = PARTS[name]
    return (is_cpu and part.cpu) or part.label


def column(name: str, *, is_cpu: bool) -> str:
    """The label in a narrow column."""
    return PARTS[name].column or label(name, is_cpu=is_cpu)


def words(*names: str, is_cpu: bool = False) -> str:
    """What parts are called in a sentence: `idle for late launches and other host work`."""
    said = [(is_cpu and PARTS[name].cpu) or PARTS[name].words for name in names]
    return " and ".join((*said[:1], *(text.removeprefix(_IDLE_FOR) for text in said[1:])))


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of the window in integer ns; the parts sum to it, exactly, or the constructor raises."""

    window_ns: int
    compute: int
    comm_exposed: int
    copy_exposed: int
    idle_data: int
    idle_sync: int
    idle_launch: int
    idle_host: int
    idle_dependency: int
    idle_unknown: int

    def __post_init__(self) -> None:
        if any(part < 0 for part in self.parts.values()) or sum(self.parts.values()) != self.window_ns:
            raise ValueError(f"budget parts {self.parts} do not partition {self.window_ns} ns")

    @property
    def parts(self) -> dict[str, int]:
        """The parts by name, in the order of the contract."""
        return {name: getattr(self, name) for name in PARTS}

    @property
    def idle_ns(self) -> int:
        """All idle parts together."""
        return sum(getattr(self, name) for name in IDLE_PARTS)

    def fraction(self, part: str) -> float:
        """The share of one part, 0-1; 0 for an empty window."""
        return self.parts[part] / self.window_ns if self.window_ns else 0.0

    @property
    def tenths(self) -> dict[str, int]:
        """The parts in tenths of a percent as every report shows them: they add up to 1000 (largest remainder)."""
        if self.window_ns == 0:
            return dict.fromkeys(self.parts, 0)
        scaled = {name: divmod(1000 * part, self.window_ns) for name, part in self.parts.items()}
        tenths = {name: whole for name, (whole, _) in scaled.items()}
        missing = 1000 - sum(tenths.values())
        for name in sorted(scaled, key=lambda part: -scaled[part][1])[:missing]:
            tenths[name] += 1
        return tenths

    def shown(self, *names: str, total_ns: int | None = None) -> float:
        """The share of parts together (0-1) as the bar has them: a sum of whole tenths of a percent.

        `total_ns`: a time that is these parts but for less than half of them, whose share is taken off. Any other time,
        and one below a tenth of a percent, has its own share, to the digit.
        """
        whole = sum(getattr(self, name) for name in names)
        left = 0 if total_ns is None else whole - total_ns
        tenths = self.tenths
        share = sum(tenths[name] for name in names) - (round(1000 * left / self.window_ns) if self.window_ns else 0)
        if 0 <= 2 * left <= whole and share > 0:
            return share / 1000
        return (whole - left) / self.window_ns if self.window_ns else 0.0


NO_TIME: Final = Budget(window_ns=0, **dict.fromkeys(PARTS, 0))
"""The budget of no window."""
