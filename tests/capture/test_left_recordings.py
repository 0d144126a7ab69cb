"""nsys leaves a recording without a report where a run is killed: ours goes, that of others stays."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from profkit.capture.tools.nsys import remove_orphans


@pytest.fixture(params=[True, False], ids=["users", "no_users"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    if not request.param:
        monkeypatch.delattr(os, "getuid", raising=False)
    return tmp_path


def test_only_the_recording_that_holds_the_mark_and_is_new_goes(folder: Path) -> None:
    for name, mark in (("ours", b"mark-1"), ("theirs", b"mark-2"), ("old", b"mark-1")):
        (folder / f"{name}.qdstrm").write_bytes(b"head " + mark)
    os.utime(folder / "old.qdstrm", (1, 1))
    assert remove_orphans(folder, "mark-1", since_s=2) == (folder / "ours.qdstrm",)
    assert sorted(path.stem for path in folder.glob("*.qdstrm")) == ["old", "theirs"]
