"""Which lines loader workers spend their time on, looked at while they make batches; nothing else of theirs changes."""

import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

pytest.importorskip("torch")

from profkit.capture.inside.added import top_level
from profkit.capture.inside.places import worker_lines
from profkit.capture.inside.places.stream_runs import Runs
from profkit.capture.inside.places.worker_lines import LineLog, LineWatch, lines_folder
from profkit.capture.place import remove_fetches
from tests.capture.running import line_of as line_ending
from tests.special import within

pytestmark = pytest.mark.torch
ID = "e" * 32


SPENT = {"busy": 0.0, "asleep": 0.0}


def read(index: int) -> int:
    begun = time.perf_counter()
    while time.perf_counter() < begun + 0.06:
        index += 1  # busy
    between = time.perf_counter()
    time.sleep(0.02)  # asleep
    SPENT["busy"] += between - begun
    SPENT["asleep"] += time.perf_counter() - between
    return index


line_of = partial(line_ending, path=__file__)


@pytest.fixture(name="log")
def _log(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    log = LineLog(ID)
    log.open()
    yield log
    log.delete()
    assert list(tmp_path.iterdir()) == [], "nothing stays behind"


def watched(n_batches: int, make=read) -> LineWatch:
    watch = LineWatch(ID)
    for number in range(n_batches):
        assert watch.is_wanted(os.getpid())
        watch.fetched(partial(make, number))
    return watch


def test_the_time_of_each_line_is_told(log):
    SPENT.update(busy=0.0, asleep=0.0)
    watched(5)
    log.shut()
    told = log.told()
    assert (told["n_workers"], told["n_batches"]) == (1, 5)
    share = {one["line"]: one["ns"] / told["seen_ns"] for one in told["lines"]}
    busy = share.get(line_of("busy"), 0) + share.get(line_of("busy") - 1, 0)
    truth = SPENT["busy"] / sum(SPENT.values())
    assert (busy, share[line_of("asleep")]) == (pytest.approx(truth, abs=0.2), pytest.approx(1 - truth, abs=0.2))
    asleep = next(one for one in told["lines"] if one["line"] == line_of("asleep"))
    assert (asleep["function"], asleep["text"]) == ("read", "time.sleep(0.02)  # asleep")
    assert told["seen_ns"] == pytest.approx(told["fetch_ns"], rel=0.5)


def test_a_worker_is_left_alone_when_it_has_been_seen_often_enough(log, monkeypatch):
    monkeypatch.setattr(worker_lines, "_ENOUGH_LOOKS", 5)
    watch = LineWatch(ID)
    while watch.is_wanted(os.getpid()):
        watch.fetched(lambda: read(0))
    told = log.told()
    assert 5 <= told["n_looks"] < 200
    assert told["n_batches"] < 20


def records(rank: int, n_workers: int) -> Iterator[int]:
    for number in range(1000):  # head
        value = number * 2  # decoded
        if number % n_workers == rank:
            yield value  # given


def test_lines_of_a_stream_are_counted_beside_its_samples(log):
    watch, stream = LineWatch(ID), records(1, 2)
    assert watch.is_wanted(os.getpid())

    def made() -> list[int]:
        time.sleep(0.02)
        return [next(stream) for _ in range(8)]

    values = [value for _ in range(6) for value in watch.fetched(made, 8, 2)]
    assert values == list(range(2, 194, 4)), "what is made stays as it is"
    told = log.told()["stream"]
    assert (told["n_samples"], told["n_workers"]) == (24, 2), "three batches are counted, the others looked at"
    found = {one["line"]: (one["runs"], one["given"]) for one in told["lines"]}
    expected = {"head": (48, 0), "decoded": (48, 0), "given": (24, 24)}
    assert {name: found[line_of(name)] for name in expected} == expected
    assert sys.gettrace() is None
    assert log.told()["n_batches"] == 3


def test_what_is_counted_has_names_that_are_read_back():
    runs, found = Runs(), {}
    exec(compile(f"def {'f' * 5000}():\n  yield 1\n", f"/{'p' * 5000}.py", "exec"), found)  # noqa: S102
    (generator,) = (one for name, one in found.items() if name.startswith("f"))
    assert runs.during(lambda: list(generator())) == [1]
    assert [[len(one[0]), len(one[1])] for one in runs.told()] == [[4096, 160]]


def test_nothing_is_counted_where_the_script_traces_itself():
    seen, stream = [], records(0, 2)
    sys.settrace(lambda *_: seen.append(1))
    try:
        runs = Runs()
        runs.during(lambda: next(stream))
    finally:
        sys.settrace(None)
    assert seen
    assert runs.told() == []


def test_batches_that_are_begun_count_and_later_ones_are_left_alone(log):
    watch = LineWatch(ID)
    assert watch.is_wanted(os.getpid())

    def closing():
        log.shut()
        return read(0)

    watch.fetched(closing)
    assert not watch.is_wanted(os.getpid())
    assert log.told()["n_batches"] == 1
    until = time.monotonic() + 5
    while any("worker lines" in one.name for one in threading.enumerate()) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any("worker lines" in one.name for one in threading.enumerate())


def test_the_script_s_own_state_stays_as_it_is(log):
    random.seed(7)
    usual, expected = sys.getswitchinterval(), random.Random(7).random()  # noqa: S311

    def ends(_):
        read(0)
        raise StopIteration("no more")

    watch = LineWatch(ID)
    assert watch.is_wanted(os.getpid())
    with pytest.raises(StopIteration, match="no more"):
        watch.fetched(lambda: ends(0))
    assert (sys.getswitchinterval(), random.random()) == (usual, expected)  # noqa: S311
    log.shut()
    assert not watch.is_wanted(os.getpid())


def test_a_batch_is_made_where_nothing_can_be_written(log, tmp_path):
    watch = LineWatch(ID)
    assert watch.is_wanted(os.getpid())
    (lines_folder(os.getpid(), ID) / "open" / f"{os.getpid()}.lines").mkdir()
    assert watch.fetched(lambda: 5) == 5
    assert not watch.is_wanted(os.getpid()), "it does not try again"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"ns": 5}', '{"ns": 5, "lines": [["f", "g", 1, 2, "", 3]]}', '{"ns": -1, "lines": []}',
     json.dumps({"ns": 5, "lines": [["f" * 5000, "g", 1, 2, "", 3, 4]]}),
     '{"ns": 5, "lines": [["f", "g", 1, true, "", 3, 4]]}', '{"ns": 5, "lines": [["f", "g", 1, 2, "", 1e30, 4]]}'],
)  # fmt: skip
def test_what_a_killed_worker_left_half_written_counts_as_nothing(log, text):
    whole = {"ns": 9, "lines": [["", "", 0, 0, "", 3, 1], [__file__, "read", 1, line_of("asleep"), "", 6, 2]]}
    (lines_folder(os.getpid(), ID) / "open" / "7.lines").write_text(f"{json.dumps(whole)}\n{text}")
    log.shut()
    told = log.told()
    assert (told["n_batches"], told["fetch_ns"], told["seen_ns"], told["n_looks"]) == (1, 9, 9, 3)
    assert [one["ns"] for one in told["lines"]] == [6], "what is no line of the script's is in the sum alone"


def test_a_file_of_somebody_else_is_not_read(log):
    pipe = lines_folder(os.getpid(), ID) / "pipe.py"
    os.mkfifo(pipe)
    named = [[name, "f", 1, 1, "", 6, 2] for name in ("/etc/hostname", str(pipe), "/a\0b.py")]
    stranger = {"ns": 9, "lines": named}
    (lines_folder(os.getpid(), ID) / "open" / "7.lines").write_text(json.dumps(stranger) + "\n")
    (lines_folder(os.getpid(), ID) / "open" / "8.lines").symlink_to("/etc/hostname")
    log.shut()
    told = within(5, log.told)
    assert told["n_workers"] == 1
    assert [one["text"] for one in told["lines"]][1:] == ["", ""], "a pipe may never end"


def test_a_folder_that_is_there_is_nobodys_of_ours(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    lines_folder(os.getpid(), ID).mkdir()
    log = LineLog(ID)
    log.open()
    assert not log.is_made
    log.delete()
    assert lines_folder(os.getpid(), ID).is_dir()


def test_no_secret_of_a_line_goes_into_the_trace():
    secret = "ghp_" + "a1B2" * 9
    line = {"file": "data.py", "function": "read", "text": f"get(url, token='{secret}')"}
    keys = top_level({"worker_lines": {"fetch_ns": 9, "lines": [line]}})
    (told,) = keys["profkit_worker_lines"]["lines"]
    assert secret not in json.dumps(keys)
    assert (told["file"], told["text"][:12]) == ("data.py", "get(url, tok")
    assert "profkit_worker_lines" not in top_level({"worker_lines": {}})


def test_what_a_killed_process_left_goes_with_its_capture(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    LineLog(ID).open()
    LineLog("d" * 32).open()
    remove_fetches(ID)
    assert [path.name[-32:] for path in tmp_path.iterdir()] == ["d" * 32]
