"""Finished ranks kept: found again by content, options and version; damaged or forged ones are made anew."""

import hashlib
import hmac
import os
import shutil
import time
import zlib
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profkit.ranks.reduce.options import Options
from profkit.ranks.reduce.outcome import outcomes_of
from profkit.ranks.reduce.records import TABLES
from profkit.ranks.run import store
from profkit.ranks.run.jobs import Job, Keeping, done
from profkit.ranks.run.store import Key, Store, content_digest, key_of, store_of, users_folder
from profkit.signing import FINISHED_RANKS, secret_for
from tests.conftest import examples
from tests.ranks.jobs import edited, job_of, rank_file
from tests.special import special_files, within

OPTIONS = Options()
SECRET = b"s" * 32


@pytest.fixture(autouse=True)
def _no_ranks_of_other_tests(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("caches")))


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
    store = Store(folder=tmp_path / "deep" / "folder", secret=SECRET)
    assert store.keep(str(source), key, outcomes)
    (before,), (after,) = outcomes, store.kept(str(source), key)
    assert after.report == before.report
    assert after.verdict == before.verdict
    assert after.case == before.case
    for table in TABLES:
        for name, column in getattr(before.summary, table).columns().items():
            found = getattr(after.summary, table).columns()[name]
            assert found.dtype == column.dtype
            assert (found == column).all()
    assert list(store.folder.iterdir()) == [store.place_of(str(source), key)]


def test_a_second_run_reads_nothing(copy):
    first, second = ran(copy), ran(copy)
    assert (first.is_kept, second.is_kept) == (False, True)
    assert second.outcomes[0].report == first.outcomes[0].report
    assert list(copy.parent.iterdir()) == [copy]  # nothing beside the trace
    place = Store(folder=users_folder(), secret=secret_for(FINISHED_RANKS)).place_of(
        str(copy), key_of(content_digest(copy), OPTIONS)
    )
    assert place.stat().st_mode & 0o777 == 0o600
    assert {folder.stat().st_mode & 0o777 for folder in (place.parent, place.parent.parent)} == {0o700}


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
    for rank in range(2):
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
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_is_believed(data, source, tmp_path):
    key = key_of(content_digest(source), OPTIONS)
    good, bad = (Store(folder=tmp_path / name, secret=SECRET) for name in ("good", "bad"))
    if good.kept(str(source), key) is None:
        good.keep(str(source), key, outcomes_of(str(source), OPTIONS))
        bad.folder.mkdir()
    whole = good.place_of(str(source), key).read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        damaged = whole[:at]
    else:
        damaged = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    bad.place_of(str(source), key).write_bytes(damaged)
    assert bad.kept(str(source), key) is None


# ------------------------------------------------------------------------------------------------------------- forged


def test_what_somebody_else_has_put_there_is_not_believed(copy, tmp_path):
    """Whoever can write into the folder can know all but the secret."""
    theirs, ours = (Store(folder=tmp_path / "shared", secret=secret) for secret in (b"t" * 32, SECRET))
    key = key_of(content_digest(copy), OPTIONS)
    theirs.keep(str(copy), key, outcomes_of(str(copy), OPTIONS))
    shutil.copy(theirs.place_of(str(copy), key), ours.place_of(str(copy), key))
    assert theirs.kept(str(copy), key) is not None
    assert ours.kept(str(copy), key) is None


def test_a_digest_is_no_signature(source, tmp_path):
    store = Store(folder=tmp_path, secret=SECRET)
    key = key_of(content_digest(source), OPTIONS)
    store.keep(str(source), key, outcomes_of(str(source), OPTIONS))
    place = store.place_of(str(source), key)
    body = place.read_bytes()[64:]
    for mark in (hashlib.sha256(body).digest(), hmac.digest(b"", key.whole + body, "sha256"), b""):
        place.write_bytes(mark + key.whole + body)
        assert store.kept(str(source), key) is None
    place.write_bytes(hmac.digest(SECRET, key.whole + body, "sha256") + key.whole + body)
    assert store.kept(str(source), key) is not None


def test_what_was_kept_for_another_source_or_options_is_not_taken(source, tmp_path):
    store = Store(folder=tmp_path, secret=SECRET)
    key, other = key_of(content_digest(source), OPTIONS), key_of(content_digest(source), Options(lenient=True))
    store.keep(str(source), key, outcomes_of(str(source), OPTIONS))
    assert store.place_of(str(source), key) == store.place_of(str(source), other)
    assert store.kept(str(source), other) is None


@pytest.mark.parametrize(
    "body",
    [
        b"\xc1",
        b"",
        msgspec.msgpack.encode([{"report": 1}]),  # of one that did not compress
        *(zlib.compress(plain) for plain in (b"", b"\xc1", *map(msgspec.msgpack.encode, ({}, [{"report": 1}], [1])))),
        zlib.compress(msgspec.msgpack.encode([]))[:-1],
    ],
)
def test_what_an_older_profkit_of_ours_wrote_is_made_anew(source, tmp_path, body):
    store = Store(folder=tmp_path, secret=SECRET)
    key = key_of(content_digest(source), OPTIONS)
    store.place_of(str(source), key).write_bytes(hmac.digest(SECRET, key.whole + body, "sha256") + key.whole + body)
    assert store.kept(str(source), key) is None


def test_a_cache_beside_the_traces_is_not_looked_at(copy):
    ran(copy)
    (copy.parent / ".profkit").mkdir()
    for path in users_folder().iterdir():
        shutil.move(path, copy.parent / ".profkit" / path.name)
    assert not ran(copy).is_kept


def test_the_secret_is_not_shown():
    assert "secret" not in repr(Keeping(folder="x", secret=b"secret"))


@pytest.mark.parametrize("wrong", ["others may read it", "cut", "a link", "another user's"])
def test_a_secret_that_others_may_know_is_not_used(tmp_path, monkeypatch, copy, wrong):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    secret_for(FINISHED_RANKS)
    path = tmp_path / "profkit" / "key"
    if wrong == "others may read it":
        path.chmod(0o644)
    elif wrong == "cut":
        path.write_bytes(b"short")
    elif wrong == "a link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(OSError, match=r"."):
        secret_for(FINISHED_RANKS)
    assert [ran(copy).is_kept for _ in range(2)] == [False, False]


def test_a_kept_rank_tells_nothing_of_its_source_by_its_name(tmp_path):
    store = Store(folder=tmp_path, secret=SECRET)
    key = Key(content=b"a" * 32, settings=b"b" * 32)
    place = store.place_of("https://host/run/rank0.json.gz?signature=abc", key)
    assert "rank0" not in place.name
    assert "abc" not in place.name
    assert place == store.place_of("https://host/run/rank0.json.gz?signature=def", key)
    assert place != store.place_of("https://host/run/rank1.json.gz", key)


def test_a_kept_rank_does_not_hold_its_address(copy, tmp_path):
    store = Store(folder=tmp_path / "kept", secret=SECRET)
    key = key_of(content_digest(copy), OPTIONS)
    store.keep(str(copy), key, outcomes_of(str(copy), OPTIONS))
    assert str(copy.parent).encode() not in store.place_of(str(copy), key).read_bytes()


# ----------------------------------------------------------------------------------------------------------- bounded


def test_the_users_folder_has_a_bound_and_the_oldest_goes_first(copy, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    ran(copy)
    (first,) = users_folder().iterdir()
    one = first.stat().st_size
    monkeypatch.setattr(store, "MOST_BYTES", 4 * one)
    now = time.time()
    for number in range(4):
        path = users_folder() / f"{number}.rank"
        path.write_bytes(b"x" * one)
        os.utime(path, (now - 1000 + number, now - 1000 + number))
    (users_folder() / "notes").write_bytes(b"x" * one)
    os.utime(first, (0, 0))
    assert ran(copy).is_kept  # what was used is not old
    monkeypatch.setattr(store, "_n_kept", 0)
    ran(copy, Options(lenient=True))
    left = sorted(path.name for path in users_folder().iterdir())
    assert left == sorted(["notes", "2.rank", "3.rank", first.name])


def test_a_folder_that_one_names_is_not_tidied(copy, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "MOST_BYTES", 1)
    ran(copy, folder=str(tmp_path))
    ran(copy, Options(lenient=True), folder=str(tmp_path))
    assert ran(copy, Options(lenient=True), folder=str(tmp_path)).is_kept


def test_a_kept_rank_larger_than_any_is_not_read(copy, tmp_path, monkeypatch):
    ran(copy, folder=str(tmp_path))
    monkeypatch.setattr(store, "MOST_OF_ONE", 100)
    assert not ran(copy, folder=str(tmp_path)).is_kept


def test_what_a_kept_rank_becomes_has_a_bound_too(copy, tmp_path, monkeypatch):
    """A signature says who wrote a file, not what it becomes."""
    ran(copy, folder=str(tmp_path / "kept"))
    (place,) = (tmp_path / "kept").iterdir()
    plain = len(zlib.decompress(place.read_bytes()[64:]))
    assert plain > place.stat().st_size
    monkeypatch.setattr(store, "MOST_PLAIN_BYTES", plain - 1)
    assert not ran(copy, folder=str(tmp_path / "kept")).is_kept
    assert not ran(copy, folder=str(tmp_path / "other")).is_kept
    assert not (tmp_path / "other").exists()  # nor written
    monkeypatch.setattr(store, "MOST_PLAIN_BYTES", plain)
    assert ran(copy, folder=str(tmp_path / "kept")).is_kept


@pytest.mark.parametrize("what", ["a named pipe", "a device", "a socket", "a folder"])
def test_what_is_no_file_in_the_folder_is_not_waited_for(copy, tmp_path, what):
    ran(copy, folder=str(tmp_path / "kept"))
    (place,) = (tmp_path / "kept").iterdir()
    place.unlink()
    shutil.move(special_files(tmp_path, "x")[what], place)
    finished = within(20, lambda: ran(copy, folder=str(tmp_path / "kept")))
    assert finished.failure is None
    assert not finished.is_kept


def test_without_a_home_nothing_is_kept(copy, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    assert store_of(None) is None
    assert ran(copy).failure is None
    given = Keeping(folder=str(tmp_path / "kept"), secret=SECRET)  # as a worker on another machine has it
    assert [done(Job(source=str(copy), options=OPTIONS, keeping=given)).is_kept for _ in range(2)] == [False, True]
