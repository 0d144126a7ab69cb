"""The published recipe again, from its 48 runs: SigLIP-2 and Qwen2.5 on one GPU, five layers, two stages.

    python -m analyses.vlm_recipe.published

Writes published/: what `profkit ladder` says as text, results.json, and the charts. The runs themselves are not this
project's to publish: the numbers are those of ladders, fronts, and factors.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from analyses.svg import Axes, Point, Series, bar_chart, scatter_chart
from profkit.compare.ladder.cells import Asked
from profkit.compare.ladder.study import climb_table
from profkit.model.documents.ladder import Cell, Factor, Ladder, LadderReport, Rung, Step
from profkit.render.terminal import ladder as terminal
from profkit.render.words import ladder as words

HERE: Final = Path(__file__).resolve().parent
TABLE: Final = HERE.parents[2] / "shared" / "data" / "seeds" / "vlm_recipe" / "benchmarks.csv"
OUT: Final = HERE / "published"
ORDER: Final = "vanilla_fp32,vanilla_bf16,compile|liger|liger_no_ce|tilegym,packing|pack_tilegym"
"""The layers in the published order; of the fused kernels one was to be picked."""
LAYERS: Final = ("base", "bf16", "batch, bucketing", "fused", "packed")
_DIGITS: Final = 6


def reanalysed() -> tuple[dict[str, Any], str, dict[str, str]] | None:
    """Gives what the published runs say: values, text, charts by file name; None where the runs do not lie here."""
    if not TABLE.is_file():
        return None
    report = climb_table(TABLE, Asked(order=ORDER))
    text = terminal.render(report, width=110, color=False)
    charts = {"ladder.svg": _ladder_chart(report)}
    for model in ("small", "large"):
        charts[f"memory_{model}.svg"] = _memory_chart(report, model)
    return _values(report), text, charts


def main() -> None:
    """Write what the published runs say beside this file."""
    found = reanalysed()
    if found is None:
        sys.exit(f"vlm_recipe: the published runs are not here ({TABLE.name}): what was found stays as it is")
    values, text, charts = found
    OUT.mkdir(exist_ok=True)
    (OUT / "ladder.txt").write_text(text, encoding="utf-8")
    (OUT / "results.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    for name, chart in charts.items():
        (OUT / name).write_text(chart, encoding="utf-8")
    print(text)


def _values(report: LadderReport) -> dict[str, Any]:
    return {
        "order": [list(group) for group in report.order],
        "unit": report.unit,
        "ladders": [_ladder(report, ladder) for ladder in report.ladders],
        "n_pairs": report.n_pairs,
        "n_mixed": report.n_mixed,
        "effects": [
            {
                "before": one.before,
                "after": one.after,
                "heading": one.heading,
                "factors": [{"series": gain.series, "factor": _rounded(gain.factor.value)} for gain in one.gains],
                "sentence": one.sentence,
            }
            for one in report.effects
        ],
    }


def _ladder(report: LadderReport, ladder: Ladder) -> dict[str, Any]:
    return {
        "name": ladder.name,
        "total": _rounded(ladder.total),
        "sentence": ladder.sentence,
        "rungs": [
            {
                **_cell(report, one.cell),
                "step": one.step.value,
                "over_before": _value(one.over_before),
                "over_first": _value(one.over_first),
                "confounds": [each.heading for each in one.confounds],
                "padding_factor": None if one.padding_factor is None else _rounded(one.padding_factor),
            }
            for one in ladder.rungs
        ],
        "beside": [
            {"rung": one.cell.rung, "why": one.why.value, "against": one.against, "over": _value(one.over)}
            for one in ladder.beside
        ],
        "interactions": [
            {
                "layers": list(one.layers),
                "product": None if one.product is None else _rounded(one.product),
                "measured": None if one.measured is None else _rounded(one.measured),
                "missing": one.missing,
            }
            for one in ladder.interactions
        ],
        "front": [_cell(report, spot.cell) for spot in ladder.spots if spot.by is None],
        "n_cells": len(ladder.spots),
        "notes": {note.id: note.statement for note in ladder.notes},
    }


def _cell(report: LadderReport, cell: Cell) -> dict[str, Any]:
    memory = None if cell.memory_bytes is None else round(cell.memory_bytes / 1e9, 2)
    return {"cell": words.of_cell(report, cell), "mean": round(cell.mean), "memory_gb": memory}


def _value(one: Factor | None) -> float | None:
    return None if one is None else _rounded(one.value)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _ladder_chart(report: LadderReport) -> str:
    """Bars of the total after each layer, side by side for each series."""
    points: dict[str, list[Point]] = {layer: [] for layer in LAYERS}
    for number, ladder in enumerate(report.ladders):
        for layer, rung in _by_layer(report, ladder).items():
            points[layer].append(Point(x=number, y=1.0 if rung.over_first is None else rung.over_first.value))
    series = [Series(name=layer, points=tuple(points[layer])) for layer in LAYERS]
    axes = Axes(
        title="Published: speed over the base, layer by layer",
        x_label="Qwen2.5 0.5B (small) and 1.5B (large); base of stage 2: bf16; one run each, no intervals",
        y_label="times the base's real tokens/s",
    )
    return bar_chart([ladder.name for ladder in report.ladders], series, axes)


def _by_layer(report: LadderReport, ladder: Ladder) -> dict[str, Rung]:
    """The last rung of each layer; the base may be of the second one, where fp32 was not run."""
    places = {name: place for place, group in enumerate(report.order) for name in group}
    found: dict[str, Rung] = {}
    for rung in ladder.rungs:
        place = places[rung.cell.rung]
        if rung.step is Step.BASE:
            layer = LAYERS[0]
        elif place <= 1:
            layer = LAYERS[2] if rung.step is Step.SETTINGS else LAYERS[1]
        else:
            layer = LAYERS[place + 1]
        found[layer] = rung
    return found


def _memory_chart(report: LadderReport, model: str) -> str:
    """The front of each stage of a model by peak memory and speed; the other cells are not ours to publish."""
    series = []
    for ladder in (one for one in report.ladders if one.name.startswith(model)):
        stage = ladder.name.partition(", ")[2]
        best = [spot.cell for spot in ladder.spots if spot.by is None]
        front = [Point(x=(cell.memory_bytes or 0.0) / 1e9, y=cell.mean / 1000) for cell in best]
        corners = [Point(x=after.x, y=before.y) for before, after in pairwise(front)]
        line = tuple(sorted([*front, *corners], key=lambda point: (point.x, point.y)))
        series += [
            Series(name=stage, points=tuple(front)),
            Series(name=f"front of {stage}", points=line, is_guide=True),
        ]
    axes = Axes(
        title=f"Published: speed and memory, {model}",
        x_label="peak memory, GB; nothing that was run is faster in less",
        y_label="1,000 real tokens/s",
    )
    return scatter_chart(series, axes)


if __name__ == "__main__":
    main()
