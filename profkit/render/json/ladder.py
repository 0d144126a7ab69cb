"""A ladder report as JSON: `profkit schema ladder` prints its schema."""

from __future__ import annotations

from typing import Final

from profkit.model.documents.ladder import Cell, Factor, Gain, Interaction, Ladder, LadderReport, Rung, Spot
from profkit.render.json.values import Shapes, document_of, written
from profkit.render.words.keys import keyed

SCHEMA_ID: Final = "profkit.ladder/1"
_RUNG: Final = "step cell over_before over_first added removed changed confounds padding_factor n_settings"
_SHAPES: Final[Shapes] = {
    LadderReport: "source metric unit higher_is_better counts rung_column series_columns setting_columns order"
    " order_source layers_told=are_layers_told margin noise ladders n_pairs n_mixed effects warnings",
    Ladder: "name total sentence rungs beside absent interactions front=spots notes",
    Rung: lambda one: keyed(one, _RUNG) | {"confounds": [each.heading for each in one.confounds]},
    Interaction: "rung layers base singles gains together product measured ratio ratio_interval=interval missing"
    " sentence",
    Spot: "cell dominated_by=by",
    Gain: lambda one: keyed(one, "series rung settings factor memory_factor") | {"settings": dict(one.settings)},
    Factor: "value interval answer p_value n is_pilot",
    Cell: lambda one: (
        keyed(one, "rung settings n runs mean cv memory_bytes padding") | {"settings": dict(one.settings)}
    ),
}


def render(report: LadderReport, **_: object) -> str:
    """The document as text: speeds in the report's unit, sizes in bytes, what is absent None."""
    return written(document_of(SCHEMA_ID, report, _SHAPES))
