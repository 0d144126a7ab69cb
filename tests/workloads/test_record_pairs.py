"""The committed pairs are what their manifest says, whole captures, and name nobody's machine."""

import datetime as dt
import gzip
import hashlib
import json
import tomllib

import pytest

torch = pytest.importorskip("torch")

from tests.conftest import ROOT  # noqa: E402
from workloads.record_pairs import RECIPES, keep, manifest_text, read_manifest  # noqa: E402
from workloads.scrub import scrub_trace  # noqa: E402
from workloads.vlm.options import read_choices  # noqa: E402

TRACES = ROOT / "traces"
PAIRS = read_manifest(TRACES / "PAIRS.toml")
SIDES = [(pair, side) for pair in PAIRS.values() for side in pair["side"]]
of_sides = pytest.mark.parametrize(("pair", "side"), SIDES, ids=[side["folder"] for _, side in SIDES])


def test_every_recipe_has_its_pair():
    assert list(PAIRS) == [recipe.name for recipe in RECIPES]
    for recipe in RECIPES:
        pair = PAIRS[recipe.name]
        assert (pair["truth"], tuple(pair["sides"])) == (recipe.truth, recipe.sides)
        assert [side["folder"] for side in pair["side"]] == [recipe.folder(name) for name in recipe.sides]
        assert [side["command"] for side in pair["side"]] == [recipe.capture_command(name) for name in recipe.sides]


@of_sides
def test_the_files_are_those_of_the_manifest(pair, side):
    folder = TRACES / side["folder"]
    assert {path.name for path in folder.glob("*.gz")} == set(side["sha256"])
    for name, digest in side["sha256"].items():
        data = (folder / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest
        assert len(data) < 4e5
        scrub_trace(gzip.decompress(data).decode())
    capture = json.loads((folder / "capture.json").read_text())
    assert {rank["trace"]: rank["sha256"] for rank in capture["ranks"]} == side["sha256"]
    assert capture["command"] in side["command"]
    assert {rank["torch"] for rank in capture["ranks"]} == {pair["torch"]}


@of_sides
def test_every_rank_has_its_steps_and_what_they_worked_on(pair, side):
    capture = json.loads((TRACES / side["folder"] / "capture.json").read_text())
    assert [(rank["rank"], rank["world_size"], rank["n_steps"]) for rank in capture["ranks"]] == [(0, 2, 3), (1, 2, 3)]
    for name in side["sha256"]:
        text = gzip.decompress((TRACES / side["folder"] / name).read_bytes()).decode()
        events = json.loads(text)["traceEvents"]
        assert sum(event.get("name") == "profkit.tokens" for event in events) >= 3
        assert sum(event.get("name") == "gloo:all_gather" for event in events) >= 3 * 4


def test_the_sides_differ_in_one_flag():
    for recipe in RECIPES:
        choices = [read_choices(recipe.command(side)[5:])[2] for side in recipe.sides]
        assert [choice.is_prefetched for choice in choices] == [False, True]


def test_a_capture_is_kept_without_the_name_of_its_host(tmp_path):
    text = '{"host_name": "box", "traceEvents": []}'
    captured = tmp_path / "captured"
    captured.mkdir()
    (captured / "rank0.pt.trace.json.gz").write_bytes(gzip.compress(text.encode()))
    rank = {"trace": "rank0.pt.trace.json.gz", "sha256": ""}
    (captured / "capture.json").write_text(json.dumps({"ranks": [rank], "command": "python x.py"}))
    hashes = keep(captured, tmp_path / "kept")
    kept = tmp_path / "kept" / "rank0.pt.trace.json.gz"
    assert gzip.decompress(kept.read_bytes()).decode() == text.replace("box", "scrubbed")
    assert hashes == {kept.name: hashlib.sha256(kept.read_bytes()).hexdigest()}
    manifest = json.loads((tmp_path / "kept" / "capture.json").read_text())
    assert manifest == {"ranks": [{**rank, "sha256": hashes[kept.name]}], "command": "python x.py"}


def test_the_manifest_is_toml_that_reads_back(tmp_path):
    side = {"folder": "a_on", "command": "profkit capture", "sha256": {"rank0.gz": "00"}, "unprofiled_step_ms": [1.5]}
    row = {"name": "a", "sides": ["off", "on"], "date": dt.date(2026, 11, 21), "side": [side, side]}
    path = tmp_path / "PAIRS.toml"
    path.write_text(manifest_text([row]), encoding="utf-8")
    assert read_manifest(path) == {"a": row}
    assert tomllib.loads(path.read_text())["pair"] == [row]
    assert read_manifest(tmp_path / "none.toml") == {}
