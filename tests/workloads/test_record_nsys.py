"""The committed exports of nsys: what they hold, what profkit says of them, and that nothing else is in one."""

import gzip
import hashlib
import tomllib
from pathlib import Path

import pytest

from profkit.api import triage
from tests.conftest import ROOT
from tests.ingest.nsys_files import Export
from workloads.record_nsys import CASES, scrub_export

EXPORTS = tomllib.loads((ROOT / "traces" / "NSYS.toml").read_text(encoding="utf-8"))["export"]


@pytest.mark.parametrize("row", EXPORTS, ids=lambda row: row["folder"])
def test_a_committed_export_gets_the_verdict_of_the_manifest(row: dict[str, str]) -> None:
    path = ROOT / "traces" / row["folder"] / "profile.sqlite.gz"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == row["sha256"]
    report = triage([path])
    assert report.verdict.bottleneck.value == row["bottleneck"]
    (rank,) = report.ranks
    assert (rank.steps.n, rank.steps.source) == (20, "NVTX")
    assert row["regime"] in {regime for regime, *_ in CASES}


def test_what_a_sleeping_dataset_does_is_named_in_the_real_export() -> None:
    report = triage([ROOT / "traces" / "nsys_data_cpu" / "profile.sqlite.gz"])
    said = " ".join(item.statement for finding in report.verdict.findings for item in finding.evidence)
    assert "of these waits, clock_nanosleep takes 91.7 %" in said
    assert "num_workers=0" in said


def test_without_operators_the_next_command_is_torchs() -> None:
    report = triage([ROOT / "traces" / "nsys_overhead_cpu" / "profile.sqlite.gz"])
    assert report.verdict.next_tool.line.text.startswith("profkit capture ")
    said = " ".join(item.statement for finding in report.verdict.findings for item in finding.evidence)
    assert "the training thread spends 46.9 % in backward, 44.7 % in forward" in said


def job(*, said: str = "ProfilerStep#1") -> Export:
    export = Export()
    export.range(1000, 2000, said)
    export.add("OSRT_API", start=1100, end=1200, globalTid=1 << 48 | 144 << 24 | 144, nameId=export.string("poll"))
    export.add("OSRT_API", start=5000, end=5200, globalTid=1 << 48 | 144 << 24 | 144, nameId=export.string("late"))
    export.add("OSRT_API", start=1100, end=1200, globalTid=1 << 48 | 999 << 24 | 999, nameId=export.string("stranger"))
    export.string("TOKEN=hunter2\x00LANG=C")
    return export


def test_nothing_but_the_jobs_rows_and_their_strings_is_copied(tmp_path: Path) -> None:
    source = job().write(tmp_path / "x.sqlite", sql=["ALTER TABLE OSRT_API ADD COLUMN callchainId INTEGER"])
    scrub_export(source, tmp_path / "out" / "x.sqlite.gz")
    data = gzip.decompress((tmp_path / "out" / "x.sqlite.gz").read_bytes())
    assert b"ProfilerStep#1" in data
    assert b"poll" in data
    assert not [word for word in (b"hunter2", b"stranger", b"late") if word in data]


def test_an_export_that_names_the_machine_is_refused(tmp_path: Path) -> None:
    source = job(said=f"{ROOT}/train.py").write(
        tmp_path / "x.sqlite", sql=["ALTER TABLE OSRT_API ADD COLUMN callchainId INTEGER"]
    )
    with pytest.raises(ValueError, match="still holds"):
        scrub_export(source, tmp_path / "x.sqlite.gz")
