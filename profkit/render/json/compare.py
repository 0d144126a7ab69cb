"""A comparison as JSON: the contract that scripts, gates and agents read. Names and units are fixed."""

from __future__ import annotations

from typing import Any, Final

from profkit.model.documents.comparison import Account, Bar, Comparison, Judgement, SideReport, WorkChange
from profkit.render.json.values import SHAPES, Shapes, document_of, written
from profkit.render.words.keys import keyed

SCHEMA_ID: Final = "profkit.compare/1"
_WATERFALL: Final = "baseline_ns candidate_ns change_ns=delta_ns parts=bars"
_WORK: Final = (
    "name operator family presence replaced_by baseline_count candidate_count baseline_ns candidate_ns"
    " change_ns=delta_ns by_count_ns by_duration_ns"
)


def _comparison(one: Comparison) -> dict[str, Any]:
    keys = (
        "judgement configurations baseline candidate waterfall compute comm readings findings unlike caveats failures"
    )
    named = [{"name": name, "judgement": judgement} for name, judgement in one.configurations]
    account = one.waterfall
    per = "step" if one.baseline.n_steps else "window"
    waterfall = None if account is None else {"per": per, **keyed(account, _WATERFALL)}
    return keyed(one, keys) | {"configurations": named, "waterfall": waterfall}


def _side(side: SideReport) -> dict[str, Any]:
    keys = (
        "name sources n_runs n_traces n_steps run_values device kind=is_cpu bottleneck? late_rank occupancy"
        " busy_comm_ns hidden_comm_ns comm_hidden_fraction peak_memory_bytes"
    )
    return keyed(side, keys) | {"kind": "cpu" if side.is_cpu else "gpu"}


def _account(account: Account) -> dict[str, Any]:
    rest = {"n": account.n_rest, **keyed(account.rest, _WORK)}
    return keyed(account, "baseline_ns candidate_ns change_ns=delta_ns rows rest side_by_side") | {"rest": rest}


_SHAPES: Final[Shapes] = {
    **SHAPES,
    Comparison: _comparison,
    Judgement: "answer sentence comparable=is_comparable metric unit higher_is_better baseline_mean candidate_mean"
    " ratio change change_interval effect interval p_value test n unit_of_replication margin minimum_detectable_effect"
    " runs_to_settle method_note",
    SideReport: _side,
    Account: _account,
    WorkChange: _WORK,
    Bar: "name baseline_ns candidate_ns change_ns=delta_ns",
}


def render(comparison: Comparison, **_: object) -> str:
    """The document as text."""
    return written(comparison_to_dict(comparison))


def comparison_to_dict(comparison: Comparison) -> dict[str, Any]:
    """The document as plain values: times integer ns per step, fractions 0-1, what is absent None."""
    return document_of(SCHEMA_ID, comparison, _SHAPES)
