"""The registry of findings: what is made has a kind, what a kind declares is used, one table says who goes first."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import profkit
from profkit.cli.explain import command
from profkit.findings import KINDS
from profkit.findings import capture as capture_kinds
from profkit.findings.capture import CHECKS
from profkit.findings.kind import FindingKind, Way
from profkit.model.budget import HOST_PARTS, words
from profkit.model.documents.handover import HandoverStatus
from profkit.model.documents.report import Bottleneck
from profkit.model.finding import Evidence, Finding
from profkit.pipeline import analyse
from profkit.testing import kernel, launch, span, trace_of
from profkit.verdict import decide
from profkit.verdict.compete import put_first, ranked_causes

ROOM = Path(profkit.__file__).parent
OUTSIDE = [path for path in sorted(ROOM.rglob("*.py")) if ROOM / "findings" not in path.parents]
MS = 1_000_000


@cache
def trees() -> dict[Path, ast.Module]:
    """The code of profkit outside its findings; parsing it takes seconds, which only these tests need."""
    return {path: ast.parse(path.read_text()) for path in OUTSIDE}


def constants() -> dict[str, FindingKind]:
    from profkit import findings

    packages = {"profkit.findings", "profkit.findings.ranks"}
    rooms = [module for module in vars(findings).values() if getattr(module, "__package__", "") in packages]
    return {name: kind for room in rooms for name, kind in vars(room).items() if isinstance(kind, FindingKind)}


def calls(attribute: str) -> Iterator[ast.Call]:
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == attribute:
                yield node


def texts_in(call: ast.Call) -> set[str]:
    nodes = [node for argument in call.args for node in ast.walk(argument)]
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def owner(call: ast.Call) -> str:
    """What the method is called on: `SYNC.limit(...)`, or `comparison.SYNCS.limit(...)`."""
    return ast.unparse(call.func.value).rpartition(".")[2]


def test_a_finding_is_made_through_its_kind_only():
    made = [
        path
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding"
    ]
    assert made == []


def test_every_kind_is_made_somewhere():
    names = {
        node.id if isinstance(node, ast.Name) else node.attr
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    }
    by_status = {f"handover.{status.value}" for status in HandoverStatus}
    unused = {kind.id for name, kind in constants().items() if name not in names}
    assert unused <= by_status
    assert {name for name in KINDS if name.startswith("handover.")} == by_status


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_is_explained(kind: FindingKind):
    assert all((kind.title, kind.meaning, kind.measured, kind.threshold_lines, kind.proof))
    if not kind.id.startswith(("compare.", "handover.")):
        assert all((kind.lookalikes, kind.fixes))
    assert kind.bottleneck is None or not kind.is_about_work


@pytest.mark.parametrize("name", CHECKS)
def test_every_check_is_explained(name: str):
    said = CliRunner().invoke(command, [name])
    assert said.exit_code == 0
    assert said.output.startswith(f"{name}: check of the capture")
    result = "no verdict" if CHECKS[name].is_refusing else "confidence at most"
    assert result in said.output
    assert max(map(len, said.output.splitlines())) <= 96
    assert name in CliRunner().invoke(command).output


def test_judges_ask_for_thresholds_that_there_are():
    kinds = constants()
    assert len(kinds) == len(KINDS)
    asked = [(kinds[owner(call)], texts_in(call)) for call in calls("limit") if owner(call) in kinds]
    assert len(asked) > 50
    assert [(kind.id, names) for kind, names in asked if not names <= set(kind.thresholds)] == []


def test_no_threshold_is_printed_that_nobody_asks_for():
    asked = set(capture_kinds.CHECKS).union(*(texts_in(call) for call in calls("limit")))
    printed = {(kind.id, name) for kind in KINDS.values() for name in kind.thresholds}
    assert {(kind, name) for kind, name in printed if name not in asked} == set()


def test_every_check_of_a_capture_is_made():
    from profkit.analyzers.quality import checks

    source = Path(checks.__code__.co_filename).read_text()
    names = {name for name, check in vars(capture_kinds).items() if isinstance(check, capture_kinds.CheckKind)}
    assert len(names) == len(capture_kinds.CHECKS)
    assert {name for name in names if f"capture.{name}" not in source} == set()


def test_what_is_superseded_exists():
    rules = [rule for kind in KINDS.values() for rule in kind.supersedes]
    assert {rule.id for rule in rules} <= set(KINDS)
    seconds = {rule.id for rule in rules if rule.way is Way.SECOND}
    assert all({"headline", "window"} <= set(KINDS[name].thresholds) for name in seconds)


def found(name: str, fraction: float, *, confidence: float = 0.8, rank: int | None = None) -> Finding:
    seen = Evidence(statement=name, metric=name, value=fraction, unit="fraction")
    return KINDS[name].found(
        fraction=fraction, confidence=confidence, recoverable_ns=1, evidence=(seen, seen), fix="", rank=rank
    )


@pytest.mark.parametrize(("pressure", "is_left"), [(0.085, False), (0.075, True)])
def test_a_cause_gives_way_to_the_one_that_explains_most_of_its_time(pressure: float, is_left: bool):
    causes = ranked_causes([found("host.sync", 0.1), found("memory.pressure", pressure)])
    assert ("host.sync" in [cause.id for cause in causes]) == is_left


def test_a_cause_does_not_give_way_to_another_ranks():
    late = found("straggler.rank", 0.2, rank=3)
    assert late in ranked_causes([late, found("rank0.work", 0.2, rank=0)])


def test_what_joins_brings_its_evidence_and_its_doubts():
    (whole,) = ranked_causes([found("rank0.work", 0.2, rank=0), found("straggler.rank", 0.2, confidence=0.3, rank=0)])
    assert whole.id == "rank0.work"
    assert whole.confidence == 0.3
    assert [item.metric for item in whole.evidence].count("straggler.rank") == 2


@pytest.mark.parametrize(
    ("transfer", "late", "first"),
    [(0.4, 0.06, "straggler.rank"), (0.4, 0.04, "comm.bandwidth"), (0.6, 0.06, "comm.bandwidth")],
)
def test_lateness_that_is_certain_comes_before_transfer_that_may_be_needed(transfer: float, late: float, first: str):
    causes = ranked_causes([found("comm.bandwidth", transfer), found("straggler.rank", late, rank=2)])
    assert put_first(causes)[0].id == first


def test_the_class_of_a_new_kind_follows_from_the_kind(monkeypatch: pytest.MonkeyPatch):
    pauses = replace(KINDS["host.stall"], id="gc.pause", title="pauses", bottleneck=Bottleneck.OVERHEAD)
    monkeypatch.setitem(KINDS, pauses.id, pauses)
    rows = [kernel("gemm_bf16", n * 10 * MS, n * 10 * MS + 2 * MS, correlation=n + 1) for n in range(8)]
    rows += [launch(n * 10 * MS - 9_000, n * 10 * MS - 5_000, correlation=n + 1) for n in range(8)]
    rows += [span(f"ProfilerStep#{n}", n * 10 * MS, (n + 1) * 10 * MS) for n in range(8)]
    case = analyse(trace_of(rows)).case
    verdict = decide(replace(case, findings=(found("gc.pause", 0.9),), refusals=()))
    assert verdict.bottleneck is Bottleneck.OVERHEAD
    assert verdict.findings[0].id == "gc.pause"
    assert not [line for line in verdict.ruled_out if line.startswith(words(*HOST_PARTS))]
