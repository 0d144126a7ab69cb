"""What a ladder of changes gave, as plain values. Renderers know nothing else.

A cell is one rung at one choice of settings; its runs are repeats of it. Speed is the metric where more is better, and
its inverse where less is. A factor is the speed of one cell over that of another, means over means, so the factors of a
ladder multiply to its last total.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from profkit.model.documents.comparison import Answer
from profkit.model.documents.shown import Shown
from profkit.plain import clean

Settings = tuple[tuple[str, str], ...]
"""Heading and value of each setting that varies in the table; "" where a row has none."""


class Counts(StrEnum):
    """Whether the metric counts padding as work."""

    REAL = "real"
    """Tokens that are no padding, samples or steps."""
    PADDED = "padded"
    UNKNOWN = "unknown"


class OrderSource(StrEnum):
    """Where the order of the rungs is from."""

    GIVEN = "given"
    NUMBERED = "numbered"
    LAYERS = "layers"
    """Each rung holds the layers of the one before, as the table tells."""
    FIRST_SEEN = "first_seen"


class Step(StrEnum):
    """What brings a ladder from one cell to the next."""

    BASE = "base"
    LAYER = "layer"
    """Another rung of the table."""
    SETTINGS = "settings"
    """Other settings of the same rung."""


class WhyNot(StrEnum):
    """Why a rung is beside the ladder."""

    SLOWER = "slower"
    """No setting of it is faster than the rungs before it."""
    ALTERNATIVE = "alternative"
    """Another of its group is faster, or, in the first group, is the base."""
    APART = "apart"
    """It lacks layers of the rung before it."""


class Mix(StrEnum):
    """Between what a change has both signs."""

    SERIES = "series"
    """It gains wherever it was measured in one series, and loses so in another."""
    SETTINGS = "settings"


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One rung at one choice of settings: `runs` in the unit of the report, `padding` as a fraction of the tokens."""

    rung: str
    settings: Settings
    runs: tuple[float, ...]
    mean: float
    cv: float | None
    memory_bytes: float | None
    padding: float | None

    @property
    def n(self) -> int:
        """Number of runs."""
        return len(self.runs)


class Factor(msgspec.Struct, frozen=True, kw_only=True):
    """How many times as fast. `interval` (95 %) is None where a side has one run; `n` counts runs or blocks a side."""

    value: float
    interval: tuple[float, float] | None
    answer: Answer
    p_value: float | None
    n: tuple[int, int]

    @property
    def is_single(self) -> bool:
        """Whether a side has one run, which cannot rule out noise."""
        return min(self.n) == 1

    @property
    def is_pilot(self) -> bool:
        """Whether the interval stands on two runs."""
        return min(self.n) == 2


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that differs between two cells; "" stands for none.

    `is_own`: it belongs to the rung, by name or because it always comes with it; else it is a second change at once.
    """

    heading: str
    before: str
    after: str
    is_own: bool


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """A place of the ladder. `over_before` and `over_first` are None for the base.

    `added` and `removed` are layers against the rung before, empty where the table does not tell layers.
    `padding_factor` is the part of `over_before` that is padding no longer (or more) processed, (1 - p) / (1 - p
    before), None where the padding is unknown. `n_settings`: settings of this rung in this series, of which the
    fastest is taken.
    """

    cell: Cell
    step: Step
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[Changed, ...]
    over_before: Factor | None
    over_first: Factor | None
    padding_factor: float | None
    n_settings: int

    @property
    def confounds(self) -> tuple[Changed, ...]:
        """What changed beside the rung itself."""
        return tuple(one for one in self.changed if not one.is_own) if self.step is Step.LAYER else ()


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """A rung that is not on the ladder, at its fastest settings: `over` the cell that the ladder had come to."""

    cell: Cell
    why: WhyNot
    against: str
    over: Factor
    changed: tuple[Changed, ...]


class Interaction(msgspec.Struct, frozen=True, kw_only=True):
    """Layers alone and together, each over the same base at settings that differ by what the layers bring.

    `gains` are those of the single layers over the base; `ratio` is what the layers give together over the product of
    these. Where cells are missing, `missing` says which, and the numbers are None.
    """

    rung: str
    layers: tuple[str, ...]
    base: Cell | None
    singles: tuple[Cell, ...]
    gains: tuple[float, ...]
    together: Cell | None
    product: float | None
    measured: float | None
    ratio: float | None
    interval: tuple[float, float] | None
    missing: str
    sentence: str


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """A cell among the others of its series by speed and peak memory.

    It is dominated where another one is as fast or faster and takes no more memory, and one of both is better;
    `by` is the place of such a cell, None on the front.
    """

    cell: Cell
    by: int | None


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader must know of a ladder's numbers."""

    id: str
    statement: str


class Ladder(msgspec.Struct, frozen=True, kw_only=True):
    """One series: its rungs from the base up, what is beside them, interactions, and the front of speed and memory.

    `absent` are rungs of the order that the series has no row of.
    """

    name: str
    rungs: tuple[Rung, ...]
    beside: tuple[Beside, ...]
    absent: tuple[str, ...]
    interactions: tuple[Interaction, ...]
    spots: tuple[Spot, ...]
    notes: tuple[Note, ...]
    sentence: str

    @property
    def base(self) -> Rung:
        """The first rung."""
        return self.rungs[0]

    @property
    def top(self) -> Rung:
        """The last rung."""
        return self.rungs[-1]

    @property
    def total(self) -> float:
        """The speed of the top over that of the base."""
        return 1.0 if self.top.over_first is None else self.top.over_first.value


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """One change between two cells that are equal in all else; `memory_factor` is new over old peak memory."""

    series: str
    rung: str
    settings: Settings
    factor: Factor
    memory_factor: float | None


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """A change that gains in one place and loses in another, all else equal.

    `heading` is the column that changed; `along` are settings that always come with these values of it.
    """

    heading: str
    before: str
    after: str
    along: tuple[Changed, ...]
    mix: Mix
    gains: tuple[Gain, ...]
    sentence: str


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """How much runs of a cell vary: `cv`, pooled over the cells with repeats, with `df` degrees of freedom.

    Two single runs of one cell differ by a factor of up to `limit` in 95 % of pairs.
    """

    cv: float
    df: int
    n_cells: int
    limit: float


class LadderReport(Shown, frozen=True, kw_only=True):
    """Everything `profkit ladder` knows.

    `rung_column` is "" where switches name the rungs. `are_layers_told`: the table says which rung stands on which.
    `setting_columns` are the settings that do not come with a rung. `n_pairs` pairs of cells, equal in all but one
    setting, were compared for `effects`; `n_mixed` changes have both signs, of which the strongest are there.
    """

    source: str
    metric: str
    unit: str
    higher_is_better: bool
    counts: Counts
    rung_column: str
    series_columns: tuple[str, ...]
    setting_columns: tuple[str, ...]
    order: tuple[tuple[str, ...], ...]
    order_source: OrderSource
    are_layers_told: bool
    margin: float
    noise: Noise | None
    ladders: tuple[Ladder, ...]
    n_pairs: int
    n_mixed: int
    effects: tuple[Effect, ...]
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        """One line: the total of each series."""
        told = "; ".join(f"{one.name}: {one.total:.2f}x" for one in self.ladders)
        return clean(f"<LadderReport: {told}>")
