"""Where the compiled scanner is looked for, and what is said where it is not in use."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from profkit.ingest.kineto.events import RareArgs
from profkit.ingest.kineto.native import decode, library
from tests.ingest.both_ways import by_python_alone, needs_library, read_both_ways
from tests.ingest.test_same_trace import EVENTS, document


@needs_library
def test_both_languages_know_the_same_arguments() -> None:
    found = library.library()
    keys = [found.profkit_argument_key(place).decode() for place in range(100) if found.profkit_argument_key(place)]
    assert sorted(keys) == sorted(field.encode_name for field in msgspec.structs.fields(RareArgs))


@pytest.fixture
def afresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the sources and nothing compiled, where the library is looked for."""
    for name in library.SOURCES:
        (tmp_path / name).write_bytes((library.FOLDER / name).read_bytes())
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    monkeypatch.delenv(library.SWITCH, raising=False)
    library.library.cache_clear()
    yield tmp_path
    library.library.cache_clear()


def test_without_a_library_it_says_how_to_get_one(afresh: Path) -> None:
    assert library.state() == (False, "not compiled", "make native, or pip install again where there is a C compiler")


def test_what_is_no_library_is_not_used(afresh: Path) -> None:
    (afresh / library.NAME).write_bytes(b"no library")
    is_used, said, _ = library.state()
    assert not is_used
    assert said.startswith("cannot be loaded: ")


@needs_library
def test_a_library_of_other_sources_is_not_used(afresh: Path) -> None:
    (afresh / library.NAME).write_bytes((Path(decode.__file__).parent / library.NAME).read_bytes())
    assert library.state()[0]
    library.library.cache_clear()
    (afresh / "scan.c").write_bytes(b"/* other */")
    assert library.state()[:2] == (False, "compiled from other sources")


def test_the_environment_may_leave_it_to_python(afresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library.SWITCH, "0")
    assert library.state() == (False, "PROFKIT_NATIVE=0 says so", "unset PROFKIT_NATIVE")


def test_without_a_scanner_python_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(document(EVENTS))

    def refuse() -> ctypes.CDLL:
        raise library.NotUsedError("not here")

    monkeypatch.setattr(decode, "_taught", refuse)
    monkeypatch.setattr(decode, "_IDLE", decode._Scanners())
    one, other_way = read_both_ways(path)
    assert one == other_way
    assert decode._IDLE.has_none


def test_python_alone_is_what_the_tests_say() -> None:
    with by_python_alone():
        assert decode.decode(b'[{"ph": "X"}]', unique_keys=False) is None
