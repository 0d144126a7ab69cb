"""Where the compiled scanner is looked for, and what is said where it is not in use."""

import ctypes
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hatch_build
from profkit.capture import doctor
from profkit.cli import triage
from profkit.ingest.kineto import scanner
from profkit.native import library
from tests.conftest import ROOT
from tests.fuzz.kinds.native import KEYS
from tests.ingest.both_ways import by_python_alone, decoded_both_ways, needs_library, read_both_ways
from tests.ingest.test_same_trace import EVENTS, document


@needs_library
def test_both_languages_know_the_same_arguments() -> None:
    found = library.library()
    keys = [found.profkit_argument_key(place).decode() for place in range(100) if found.profkit_argument_key(place)]
    assert sorted(keys) == KEYS


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
    (afresh / library.NAME).write_bytes((Path(library.__file__).parent / library.NAME).read_bytes())
    assert library.state()[0]
    library.library.cache_clear()
    (afresh / "scan.c").write_bytes(b"/* other */")
    assert library.state()[:2] == (False, "compiled from other sources")


def test_the_environment_may_leave_it_to_python(afresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library.SWITCH, "0")
    assert library.state() == (False, "PROFKIT_NATIVE=0 says so", "unset PROFKIT_NATIVE")


@needs_library
@pytest.mark.parametrize(("name", "value"), [("byteorder", "big"), ("maxsize", 2**31 - 1)])
def test_on_other_machines_it_is_left_to_python(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert library.state()[0]
    library.library.cache_clear()
    with monkeypatch.context() as other:
        other.setattr(library, "sys", SimpleNamespace(**{"byteorder": "little", "maxsize": 2**63 - 1, name: value}))
        found = library.state()
        none = scanner._Scanners()
        other.setattr(scanner, "_IDLE", none)
        block, why = scanner.scanned(b"[]", unique_keys=False)
        assert (bytes(block), why, none.has_none) == (b"", 0, True)
    library.library.cache_clear()
    assert found == (False, "written for 64-bit machines that are little-endian", "")


def test_without_a_scanner_python_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(document(EVENTS))

    def refuse() -> ctypes.CDLL:
        raise library.NotUsedError("not here")

    monkeypatch.setattr(scanner, "_taught", refuse)
    monkeypatch.setattr(scanner, "_IDLE", scanner._Scanners())
    one, other_way = read_both_ways(path)
    assert one == other_way
    assert scanner._IDLE.has_none


def test_python_alone_is_what_the_tests_say() -> None:
    with by_python_alone():
        assert scanner.decode(b'[{"ph": "X"}]', unique_keys=False) is None


def test_doctor_says_whether_it_is_in_use(afresh: Path) -> None:
    check = doctor._scanner_check()
    assert (check.name, check.is_ok) == ("scanner", None)
    assert check.seen == "not compiled: Python reads traces, some three times slower"
    assert check.fix.startswith("make native")


@needs_library
def test_doctor_says_that_it_is_in_use() -> None:
    assert doctor._scanner_check() == doctor.Check(name="scanner", is_ok=True, seen=f"in use ({library.NAME})")


@pytest.mark.parametrize(("megabytes", "n_jobs"), [(1, 1), (8, 3)])
def test_files_are_shared_where_that_is_faster(
    megabytes: int, n_jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    path = tmp_path / "t.json.gz"
    with path.open("wb") as file:
        file.truncate(megabytes << 20)
    assert triage.jobs_for([str(path)]) == n_jobs


# ------------------------------------------------------------------------------------------------------------- build


def test_what_is_compiled_is_what_is_loaded() -> None:
    assert (hatch_build.SOURCES, hatch_build.NAME) == (library.SOURCES, library.NAME)
    assert library.FOLDER.as_posix().endswith(hatch_build.FOLDER)
    found = {path.name for path in library.FOLDER.iterdir() if path.suffix in {".c", ".h"}}
    assert found == set(library.SOURCES)


class App:
    """What hatch shows its warnings with."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def display_warning(self, text: str) -> None:
        self.said.append(text)


def hook(target: str = "wheel") -> hatch_build.CustomBuildHook:
    made = hatch_build.CustomBuildHook.__new__(hatch_build.CustomBuildHook)
    made.__dict__ |= {"root": str(ROOT), "target_name": target, "app": App()}
    return made


def test_an_install_without_a_compiler_is_python_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(library.SWITCH, raising=False)
    monkeypatch.setenv("CC", "no-such-compiler")
    build_data: dict[str, Any] = {"force_include": {}}
    one = hook()
    one.initialize("standard", build_data)
    assert build_data == {"force_include": {}}
    assert one.app.said == ["profkit without its compiled library: no C compiler: no-such-compiler"]


def test_a_compiler_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(hatch_build.CompileError, match="false exits with 1"):
        hatch_build.compiled(library.FOLDER, tmp_path / "compiled.library")
    assert list(tmp_path.iterdir()) == []


def compiled_nothing(folder: Path, target: Path) -> None:
    target.write_bytes(b"a library")


def test_a_wheel_with_the_scanner_is_for_one_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(library.SWITCH, raising=False)
    monkeypatch.setattr(hatch_build, "compiled", compiled_nothing)
    build_data: dict[str, Any] = {"force_include": {}}
    one = hook()
    one.initialize("standard", build_data)
    ((source, target),) = build_data["force_include"].items()
    assert Path(source).read_bytes() == b"a library"
    one.finalize("standard", build_data, "x.whl")
    assert not Path(source).exists()
    assert target == f"{hatch_build.FOLDER}/{library.NAME}"
    assert re.fullmatch(r"py3-none-\w+", build_data["tag"])
    assert not build_data["pure_python"]


@pytest.mark.parametrize(("target", "switch"), [("sdist", "1"), ("wheel", "0")])
def test_a_source_distribution_and_who_wants_none_get_none(
    target: str, switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROFKIT_NATIVE", switch)
    monkeypatch.setattr(hatch_build, "compiled", compiled_nothing)
    build_data: dict[str, Any] = {"force_include": {}}
    hook(target).initialize("standard", build_data)
    assert build_data == {"force_include": {}}


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("flags", [("-DPROFKIT_WITHOUT_SSE2",)])
def test_without_vectors_it_reads_the_same(
    flags: tuple[str, ...], afresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hatch_build.compiled(afresh, afresh / library.NAME, flags=("-O0", *flags))
    monkeypatch.setattr(scanner, "_IDLE", scanner._Scanners())
    by_scanner, plain = decoded_both_ways(json.dumps(EVENTS).encode())
    assert len(scanner._IDLE) == 1
    assert by_scanner == plain
