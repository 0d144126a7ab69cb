"""A fleet as plain values for the report's JSON: times integer ns, what is absent None."""

from __future__ import annotations

from typing import Any, Final

from profkit.model.documents.fleet import ClockRow, Fleet, Prediction, RankRow
from profkit.render.json.values import Shapes
from profkit.render.words.fleet import TIMES
from profkit.render.words.keys import keyed


def _fleet(fleet: Fleet) -> dict[str, Any]:
    return {
        **keyed(fleet, "world_size ranks missing n_missing left_out rows groups"),
        "clocks": {"note": fleet.clock_note, "ranks": fleet.clocks},
        **keyed(fleet, "refusals explained prediction prediction_note"),
    }


SHAPES: Final[Shapes] = {
    Fleet: _fleet,
    RankRow: lambda row: {"rank": row.ranks[0], **keyed(row, TIMES), "cause": row.cause or None},
    ClockRow: "rank offset_ns drift_ppm n_ends residual_p95_ns fitted=is_fitted",
    Prediction: "ranks observed_ns replayed_ns predicted_ns predicted_most_ns replay_error_fraction=error_fraction"
    " n_steps unmodelled",
}
