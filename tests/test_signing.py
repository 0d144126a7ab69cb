"""A command is repeated in a report where this user's own capture wrote it."""

import os
import stat
from pathlib import Path

import pytest

from profkit import signing


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "profkit" / "key"


def test_a_mark_holds_for_what_it_was_made_for(place: Path) -> None:
    mark = signing.mark_of(signing.COMMAND, b"python t.py")
    assert signing.holds(signing.COMMAND, b"python t.py", mark)
    assert mark == signing.mark_of(signing.COMMAND, b"python t.py")
    assert not signing.holds(signing.COMMAND, b"python u.py", mark)
    assert not signing.holds(b"profkit cache", b"python t.py", mark)


@pytest.mark.parametrize("mark", [None, "", 0, [], {}, "é", "0" * 64, True])
def test_no_other_mark_holds(mark: object, place: Path) -> None:
    signing.mark_of(signing.COMMAND, b"")
    assert not signing.holds(signing.COMMAND, b"python t.py", mark)


def test_what_is_derived_for_a_purpose_is_not_the_key(place: Path) -> None:
    secret = signing.secret_for(signing.FINISHED_RANKS)
    assert secret == signing.secret_for(signing.FINISHED_RANKS) != signing.secret_for(signing.COMMAND)
    assert len(secret) == 32
    assert place.read_bytes() != secret


def test_reading_makes_no_key(place: Path) -> None:
    assert not signing.holds(signing.COMMAND, b"python t.py", "0" * 64)
    assert not place.parent.exists()


def test_the_key_is_the_users_alone(place: Path) -> None:
    signing.mark_of(signing.COMMAND, b"")
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert list(place.parent.iterdir()) == [place]


@pytest.mark.parametrize("spoilt", ["others may read it", "short", "a link", "a pipe"])
def test_a_key_that_others_may_know_is_none(spoilt: str, place: Path, tmp_path: Path) -> None:
    mark = signing.mark_of(signing.COMMAND, b"x")
    key = place.read_bytes()
    place.unlink()
    if spoilt == "a link":
        (tmp_path / "elsewhere").write_bytes(key)
        (tmp_path / "elsewhere").chmod(0o600)
        place.symlink_to(tmp_path / "elsewhere")
    elif spoilt == "a pipe":
        os.mkfifo(place, 0o600)
    else:
        place.write_bytes(key[: 31 if spoilt == "short" else None])
        place.chmod(0o644 if spoilt == "others may read it" else 0o600)
    assert not signing.holds(signing.COMMAND, b"x", mark)
    assert signing.mark_of(signing.COMMAND, b"x") == ""


def test_without_a_place_for_a_key_nothing_is_marked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    assert signing.mark_of(signing.COMMAND, b"x") == ""
