"""Finished ranks kept: found again by content, options and version; whatever is damaged is made anew."""

from __future__ import annotations

import os
import shutil
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from profkit.ranks import store
from profkit.ranks.jobs import Job, Keeping, done
from profkit.ranks.options import Options
from profkit.ranks.outcome import outcomes_of
from profkit.ranks.store import Key, content_digest, keep, kept, key_of, place_of
from tests.ranks.jobs import edited, job_of, rank_file

OPTIONS = Options()


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return rank_file(job_of(tmp_path_factory.mktemp("job"), n_ranks=2), 0)


@pytest.fixture
def copy(source: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(source, tmp_path / source.name))


def ran(path: Path | str, options: Options = OPTIONS, folder: str | None = None):
    return done(Job(source=str(path), options=options, keeping=Keeping(folder=folder)))


def test_what_is_kept_is_what_was_found(source, tmp_path):
    outcomes = outcomes_of(str(source), OPTIONS)
    key = key_of(content_digest(source), OPTIONS)
    place = tmp_path / "deep" / "one.rank"
    assert keep(place, key, outcomes)
    (before,), (after,) = outcomes, kept(place, key, str(source))
    assert after.report == before.report
    assert after.verdict == before.verdict
    assert after.case == before.case
    for table in ("collectives", "steps", "ranges", "lead_ranges", "work"):
        for name, column in getattr(before.summary, table).columns().items():
            found = getattr(after.summary, table).columns()[name]
            assert found.dtype == column.dtype
            assert (found == column).all()
    assert [file.name for file in place.parent.iterdir()] == ["one.rank"]


def test_a_second_run_reads_nothing(copy):
    first, second = ran(copy), ran(copy)
    assert (first.is_kept, second.is_kept) == (False, True)
    assert second.outcomes[0].report == first.outcomes[0].report
    assert [path.parent.name for path in copy.parent.rglob("*.rank")] == [".profkit"]


def test_other_options_other_bytes_and_other_code_are_other_outcomes(copy, monkeypatch):
    ran(copy)
    assert not ran(copy, Options(step_range=(0, 5))).is_kept
    assert ran(copy, Options(step_range=(0, 5))).is_kept
    assert not ran(copy).is_kept  # one place for a source: the last options win
    monkeypatch.setattr(store, "code_digest", lambda: b"later")
    assert not ran(copy).is_kept
    monkeypatch.undo()
    edited(copy, lambda document: document["traceEvents"].pop(5))
    assert not ran(copy).is_kept


def test_a_trace_that_moved_is_found_again_under_its_new_name(copy, tmp_path):
    folder = str(tmp_path / "cache")
    ran(copy, folder=folder)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    moved = Path(shutil.move(copy, moved / copy.name))
    again = ran(moved, folder=folder)
    assert again.is_kept
    (outcome,) = again.outcomes
    assert outcome.report.source == outcome.verdict.source == outcome.summary.source == str(moved)


class _Served(SimpleHTTPRequestHandler):
    """A folder over HTTP; with `tells_time` False it says nothing that changes with a file."""

    tells_time = True

    def log_message(self, *args):
        pass

    def send_header(self, keyword, value):
        if self.tells_time or keyword != "Last-Modified":
            super().send_header(keyword, value)


@pytest.fixture
def served(tmp_path):
    """Gives the address of a folder's server."""
    pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Served, directory=tmp_path)) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_another_file_at_the_same_web_address_is_another_outcome(copy, tmp_path, served):
    url, folder = f"{served}/{copy.name}", str(tmp_path / "cache")
    first = ran(url, folder=folder)
    assert first.failure is None
    assert (first.is_kept, ran(url, folder=folder).is_kept) == (False, True)
    edited(copy, lambda document: document["traceEvents"].pop(5))
    os.utime(copy, ns=(0, copy.stat().st_mtime_ns + 2 * 10**9))
    assert not ran(url, folder=folder).is_kept


def test_what_a_server_tells_no_change_of_is_not_kept(copy, tmp_path, served, monkeypatch):
    monkeypatch.setattr(_Served, "tells_time", False)
    url, folder = f"{served}/{copy.name}", str(tmp_path / "cache")
    assert [ran(url, folder=folder).is_kept for _ in range(2)] == [False, False]


def test_a_rank_that_only_the_name_tells_is_not_taken_from_a_file_with_the_same_bytes(copy, tmp_path):
    edited(copy, lambda document: document.pop("distributedInfo"))
    folder = str(tmp_path / "cache")
    ranks = []
    for rank in range(2):  # the names differ where the name of what is kept is cut
        path = shutil.copy(copy, tmp_path / f"{'n' * 130}.rank{rank}.json.gz")
        (outcome,) = ran(path, folder=folder).outcomes
        ranks.append((outcome.summary.rank, outcome.report.rank))
    assert ranks == [(0, 0), (1, 1)]


def test_a_folder_that_cannot_be_written_is_no_error(copy, tmp_path):
    (tmp_path / "a_file").write_text("")
    finished = ran(copy, folder=str(tmp_path / "a_file"))
    assert finished.failure is None
    assert len(finished.outcomes) == 1


def test_a_source_that_fails_is_not_kept(tmp_path):
    path = tmp_path / "rank0.json"
    path.write_text("[1, 2")
    assert ran(path).failure is not None
    assert not list(tmp_path.rglob("*.rank"))


@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_is_believed(data, source, tmp_path):
    key = key_of(content_digest(source), OPTIONS)
    place = tmp_path / "one.rank"
    if not place.exists():
        keep(place, key, outcomes_of(str(source), OPTIONS))
    whole = place.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        damaged = whole[:at]
    else:
        damaged = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    bad = tmp_path / "bad.rank"
    bad.write_bytes(damaged)
    assert kept(bad, key, str(source)) is None


def test_a_well_formed_file_with_other_content_is_refused(source, tmp_path):
    import hashlib

    import msgspec

    key = key_of(content_digest(source), OPTIONS)
    for body in (msgspec.msgpack.encode([{"report": 1}]), b"\xc1", msgspec.msgpack.encode({})):
        place = tmp_path / "forged.rank"
        place.write_bytes(hashlib.sha256(body).digest() + key.whole + body)
        assert kept(place, key, str(source)) is None


def test_names_stay_short_and_apart(source):
    key = Key(content=b"a" * 32, settings=b"b" * 32)
    long = place_of("/x/" + "n" * 300 + ".json", key, "/cache")
    assert len(long.name) < 200
    other = place_of("/y/" + "n" * 300 + ".json", replace(key, content=b"c" * 32), "/cache")
    assert other != long
