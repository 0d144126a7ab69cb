"""A late rank leads where mending it gives the most, or nearly; what all ranks lose comes first where that is more."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import profkit
from profkit.model.documents.report import Bottleneck
from profkit.render.words import triage as text
from tests.ranks.scripted import MS, Group, Op, run, write

WORLD = Group(name="0", ranks=(0, 1, 2, 3))
STEP_MS = 80


def allocating(rank: int, freed_ms: int, late_ms: int) -> Iterator[Op]:
    """Three busy steps; all ranks free memory with an idle device, most in the second; rank 2 is late in each."""
    for step in range(3):
        yield Op(what="step")
        yield Op(what="call", ns=freed_ms * MS * (9 if step == 1 else 1), name="cudaFree")
        for _ in range(8):
            yield Op(what="compute", ns=STEP_MS * MS // 8, name="ampere_bf16_s16816gemm_bf16_128x128_tn")
            yield Op(what="sync")
            yield Op(what="host", ns=late_ms * MS // 8 if rank == 2 else 0)
            yield Op(what="collective", name="allreduce", group=WORLD)
        yield Op(what="join")
        yield Op(what="sync")


def triaged(folder: Path, *, freed_ms: int, late_ms: int) -> profkit.Report:
    ranks = run({rank: allocating(rank, freed_ms, late_ms) for rank in range(4)})
    return profkit.triage([str(write(ranks, folder))])


@pytest.mark.parametrize(("freed_ms", "late_ms", "is_late"), [(20, 24, False), (2, 24, True), (0, 24, True)])
def test_a_late_rank_leads_only_where_it_gives_the_most(
    freed_ms: int, late_ms: int, is_late: bool, tmp_path: Path
) -> None:
    report = triaged(tmp_path, freed_ms=freed_ms, late_ms=late_ms)
    found = {finding.id: finding for finding in report.findings}
    assert "straggler.rank" in found
    assert (report.verdict.bottleneck is Bottleneck.STRAGGLER) == is_late
    lost = found["memory.pressure"].recoverable_ns if "memory.pressure" in found else 0
    assert (lost > found["straggler.rank"].recoverable_ns) != is_late


def test_a_few_steps_that_differ_are_listed(tmp_path: Path) -> None:
    said = text.step_sentence(triaged(tmp_path, freed_ms=20, late_ms=24))
    assert said.startswith("Step 1")
    assert " on average (3 steps of 1" in said
    assert "varies by" not in said
    even = text.step_sentence(triaged(tmp_path / "even", freed_ms=0, late_ms=24))
    assert "(3 steps, varies by" in even
