"""Probes drawn by hand: slopes with half-widths, read as profkit reads them."""

from profkit.model.documents.probe import ProbeReport, Reading, Slope
from profkit.probe.report import more_steps, read


def slope(value: float, half: float, *, time_ns: int | None = 30_000_000) -> Slope:
    """A slope of which only place is open."""
    interval = round(value - half, 9), round(value + half, 9)
    reading = read(value, interval)
    return Slope(
        place="",
        slope=value,
        interval=interval,
        reading=reading,
        n_treated=16,
        dose_ns=9_000_000,
        time_ns=time_ns,
        worth_ns=None if time_ns is None else round(value * time_ns),
        worth_interval_ns=None if time_ns is None else (0, time_ns),
        slack_ns=5_000_000 if reading is Reading.HIDDEN else 0,
        slack_least_ns=4_000_000 if reading is Reading.HIDDEN else 0,
        more_steps=more_steps(half, 400, 16) if reading is Reading.INCONCLUSIVE else None,
    )


def probed(**slopes: Slope) -> ProbeReport:
    """A probe of these places."""
    named = tuple(
        Slope(**{name: getattr(one, name) for name in one.__struct_fields__ if name != "place"}, place=place)
        for place, one in slopes.items()
    )
    return ProbeReport(
        command="python train.py",
        step_source="the optimizer's step",
        step_ns=40_000_000,
        after_ns=41_000_000,
        probed_ns=42_000_000,
        n_before=20,
        n_probed=400,
        n_planned=400,
        n_after=20,
        doses_ns=(6_000_000, 18_000_000),
        seed=0,
        n_ranks=1,
        n_workers=1,
        most_cost=0.045,
        cost=0.04,
        slopes=named,
        total=0.98,
        total_interval=(0.9, 1.06),
        notes=("3 steps with another loop inside (a validation?) left out",),
    )
