"""The committed captures of several ranks are what their manifest says, whole, and name nobody's machine."""

import datetime as dt
import gzip
import hashlib
import json

import pytest

torch = pytest.importorskip("torch")

from tests.conftest import ROOT  # noqa: E402
from workloads import ddp, token_skew  # noqa: E402
from workloads.rank_cases import CASES  # noqa: E402
from workloads.record_ranks import capture_command, manifest_text, read_manifest  # noqa: E402
from workloads.scrub import scrub_trace  # noqa: E402

TRACES = ROOT / "traces"
ROWS = read_manifest(TRACES / "RANKS.toml")
of_cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def test_every_case_has_its_capture():
    assert list(ROWS) == [case.name for case in CASES]


@of_cases
def test_the_files_are_those_of_the_manifest(case):
    row, folder = ROWS[case.name], TRACES / case.name
    assert (row["command"], row["truth"]) == (capture_command(case), case.truth)
    assert {path.name for path in folder.glob("*.gz")} == set(row["sha256"])
    assert len(row["sha256"]) == case.n_ranks
    for name, digest in row["sha256"].items():
        data = (folder / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest
        assert len(data) < 4e5
        scrub_trace(gzip.decompress(data).decode())
    capture = json.loads((folder / "capture.json").read_text())
    assert {rank["trace"]: rank["sha256"] for rank in capture["ranks"]} == row["sha256"]
    assert {(rank["torch"], rank["n_steps"], rank["world_size"]) for rank in capture["ranks"]} == {
        (row["torch"], case.n_steps, case.n_ranks)
    }


def test_all_of_them_are_small():
    assert sum(path.stat().st_size for case in CASES for path in (TRACES / case.name).iterdir()) < 6.5e6


@of_cases
def test_the_workload_takes_the_flags_of_the_case(case):
    read = {"ddp": ddp, "token_skew": token_skew}[case.study].read_doses
    args, doses = read(case.flags)
    assert doses.steps >= case.n_steps + 12  # before and after the recorded ones some are timed
    assert not args.json


def test_the_manifest_is_toml_that_reads_back(tmp_path):
    row = {"folder": "a", "date": dt.date(2026, 11, 21), "unprofiled_step_ms": [1.5], "sha256": {"rank0.gz": "00"}}
    path = tmp_path / "RANKS.toml"
    path.write_text(manifest_text([row, {**row, "folder": "b"}]), encoding="utf-8")
    assert read_manifest(path) == {"a": row, "b": {**row, "folder": "b"}}
    assert read_manifest(tmp_path / "none.toml") == {}
