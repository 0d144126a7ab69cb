"""Files of other tools: named as what they are, with what opens them."""

import cProfile
import gzip
import json
import pickle
import sqlite3
import struct
import zipfile
from pathlib import Path

import pytest

from profkit.api import triage
from profkit.errors import TraceFormatError
from profkit.ingest.ncu.reader import read_profiles

_SPEEDSCOPE = {"$schema": "https://www.speedscope.app/file-format-schema.json", "profiles": []}
_TFEVENTS = struct.pack("<Q", 24) + b"\1\2\3\4\x09" + bytes(8) + b"\x1a\x0dbrain.Event:2" + bytes(20)
_CPUPROFILE = {"nodes": [{"id": 1, "callFrame": {"functionName": "(root)"}}], "samples": []}

FILES = {
    "snapshot.pickle": (pickle.dumps({"segments": []}), "a Python pickle", "memory_viz"),
    "renamed.json": (pickle.dumps({"segments": []}), "a Python pickle", "memory_viz"),
    "run.pftrace": (b"\x0a\x10" + bytes(30), "Perfetto's own format", "ui.perfetto.dev"),
    "run": (b"\x0a\x10" + bytes(30), "a binary protobuf", "ui.perfetto.dev"),
    "host.xplane.pb": (b"\x0a\x10" + bytes(30), "an XPlane profile", "xprof"),
    "events.out.tfevents.1.host": (_TFEVENTS, "an event file of TensorBoard", "tensorboard --logdir"),
    "s.speedscope.json": (json.dumps(_SPEEDSCOPE).encode(), "a flame graph for speedscope", "speedscope.app"),
    "s.json.gz": (
        gzip.compress(json.dumps(_SPEEDSCOPE).encode(), mtime=0),
        "a flame graph for speedscope",
        "speedscope.app",
    ),
    "train.ipynb": (b'{"cells": [], "nbformat": 4}', "a Jupyter notebook", "export_chrome_trace"),
    "node.cpuprofile": (json.dumps(_CPUPROFILE).encode(), "a CPU profile of Chrome", "DevTools"),
    "page.html": (b"<!DOCTYPE html><html></html>", "a page for a browser", "browser"),
    "x.npy": (b"\x93NUMPY\1\0" + bytes(20), "a NumPy array", "torch.profiler"),
}


def refused(path: Path) -> TraceFormatError:
    """The error that triage raises for a file."""
    with pytest.raises(TraceFormatError) as told:
        triage(path)
    return told.value


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_tool_is_named_as_what_it_is(name, tmp_path):
    content, what, opens = FILES[name]
    (tmp_path / name).write_bytes(content)
    error = refused(tmp_path / name)
    assert what in error.message
    assert opens in error.hint


def test_a_profile_of_functions_is_named(tmp_path):
    profile = cProfile.Profile()
    profile.runcall(sorted, [2, 1])
    profile.dump_stats(tmp_path / "out.prof")
    assert "cProfile" in refused(tmp_path / "out.prof").message


@pytest.mark.parametrize(
    ("name", "member", "what"),
    [("model.pt", "archive/data.pkl", "checkpoint"), ("a.npz", "a.npy", "NumPy"), ("runs.zip", "a.json", "ZIP")],
)
def test_an_archive_is_named_by_what_is_in_it(name, member, what, tmp_path):
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr(member, b"x")
    assert what in refused(tmp_path / name).message


def test_a_database_of_another_tool_is_named_by_its_tables(tmp_path):
    for name, table in (("dlprof_dldb.sqlite", "iterations"), ("notes.sqlite", "moz_places")):
        database = sqlite3.connect(tmp_path / name)
        database.execute(f"create table {table}(x)")
        database.commit()
        database.close()
    assert "a database of DLProf" in refused(tmp_path / "dlprof_dldb.sqlite").message
    assert "not an nsys export (its tables: moz_places)" in refused(tmp_path / "notes.sqlite").message


def test_what_is_no_profile_of_kernels_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"x")
    (tmp_path / "trace.json").write_bytes(b'{"traceEvents": []}')
    with pytest.raises(TraceFormatError, match="not an output of ncu: it is a PyTorch checkpoint") as told:
        read_profiles(str(tmp_path / "model.pt"))
    assert "ncu --csv" in told.value.hint
    with pytest.raises(TraceFormatError) as told:
        read_profiles(str(tmp_path / "trace.json"))
    assert "profkit triage" in told.value.hint


@pytest.mark.parametrize("text", ["{(x)}\n", "<s> a program's own output\n"])
def test_text_is_not_taken_for_another_tools_file(text, tmp_path):
    (tmp_path / "x").write_text(text)
    assert "it is" not in refused(tmp_path / "x").message
