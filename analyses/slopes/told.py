"""What the tables of runs and slopes say of each case: numbers for results.json, and a table for people."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Final

from analyses.slopes.cases import MOST_COST, NEAR, SUM_NEAR, Case

Row = dict[str, Any]
_HEADINGS: Final = ("case", "place", "truth", "n", "mean", "varies by", "half-width", "holds it", "within", "")


def summary(cases: Sequence[Case], runs: Sequence[Row], slopes: Sequence[Row]) -> list[Row]:
    """One entry for each case that was probed: its slopes, its sum, its cost, and whether outputs stayed the same."""
    found = []
    for case in cases:
        pairs = _pairs(case, runs)
        if pairs:
            probed = [pair["probed"] for pair in pairs.values() if "probed" in pair]
            places = [_place(case, place, truth, _found(case, place, slopes)) for place, truth in case.truth.items()]
            if case.sum_is_one:
                sums = [{"slope": row["sum"], "low": row["sum_low"], "high": row["sum_high"]} for row in probed]
                places.append(_place(case, "sum", 1.0, [row for row in sums if row["slope"]], near=SUM_NEAR))
            found.append({"case": case.name, "places": [one for one in places if one], **_cost(pairs)})
    return found


def _pairs(case: Case, runs: Sequence[Row]) -> dict[str, dict[str, Row]]:
    pairs: dict[str, dict[str, Row]] = {}
    for row in runs:
        if row["case"] == case.name:
            pairs.setdefault(row["repeat"], {})[row["arm"]] = row
    return pairs


def _found(case: Case, place: str, slopes: Sequence[Row]) -> list[Row]:
    """The slopes of a place; of a repeat that was stopped and run again, the last."""
    return list({row["repeat"]: row for row in slopes if (row["case"], row["place"]) == (case.name, place)}.values())


def _place(case: Case, place: str, truth: float, rows: Sequence[Row], *, near: float = NEAR) -> Row | None:
    if not rows:
        return None
    values = [float(row["slope"]) for row in rows]
    ends = [(float(row["low"]), float(row["high"])) for row in rows]
    mean = statistics.fmean(values)
    return {
        "place": place,
        "truth": truth,
        "near": near,
        "n": len(values),
        "mean": mean,
        "deviation": statistics.stdev(values) if len(values) > 1 else None,
        "half_width": statistics.median((high - low) / 2 for low, high in ends),
        "n_covering": sum(low <= truth <= high for low, high in ends),
        "n_within": sum(abs(value - truth) <= near for value in values),
        "passes": abs(mean - truth) <= near,
    }


def _cost(pairs: dict[str, dict[str, Row]]) -> Row:
    """What the probe says it cost, what the process and its steps took beside the plain run's, and the load."""
    whole = [pair for pair in pairs.values() if len(pair) == 2]
    costs = [float(pair["probed"]["cost"]) for pair in pairs.values() if "probed" in pair]
    steps = [_ratio(pair, "mean_ms") for pair in whole if pair["plain"]["mean_ms"]]
    return {
        "cost": statistics.fmean(costs) if costs else None,
        "most_cost": max(costs, default=None),
        "cost_passes": bool(costs) and max(costs) <= MOST_COST,
        "wall_ratio": statistics.median(_ratio(pair, "wall_s") for pair in whole) if whole else None,
        "step_ratio": statistics.median(steps) if steps else None,
        "n_pairs": len(whole),
        "n_same_output": sum(pair["plain"]["output"] == pair["probed"]["output"] for pair in whole),
        "most_load": max(float(row["load_before"]) for pair in pairs.values() for row in pair.values()),
    }


def _ratio(pair: dict[str, Row], column: str) -> float:
    return float(pair["probed"][column]) / float(pair["plain"][column])


def as_table(found: Sequence[Row]) -> str:
    """The summary as a table in Markdown, and a line on each case's cost."""
    lines = ["| " + " | ".join(_HEADINGS) + " |", "|---|---|" + "---:|" * 7 + "---|"]
    for case in found:
        for one in case["places"]:
            cells = [
                case["case"],
                one["place"],
                f"{one['truth']:.0f}",
                str(one["n"]),
                f"{one['mean']:.2f}",
                "-" if one["deviation"] is None else f"{one['deviation']:.2f}",
                f"{one['half_width']:.2f}",
                f"{one['n_covering']} of {one['n']}",
                f"{one['n_within']} of {one['n']}",
                "pass" if one["passes"] else "FAIL",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| case | cost by the probe | the most | wall | step | same output | load up to | |"]
    lines.append("|---|" + "---:|" * 6 + "---|")
    for case in found:
        is_fine = case["cost_passes"] and case["n_same_output"] == case["n_pairs"] > 0
        cells = [
            case["case"],
            _percent(case["cost"]),
            _percent(case["most_cost"]),
            _times(case["wall_ratio"]),
            _times(case["step_ratio"]),
            f"{case['n_same_output']} of {case['n_pairs']}",
            f"{case['most_load']:.1f}",
            "pass" if is_fine else "FAIL",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}".replace("%", " %")


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}x"
