"""What a capture sees of other threads: batches that they hand over, the lock that they hold, workers started anew."""

import queue
import threading
from concurrent.futures import Future
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.utils.data import dataloader

from profkit.capture.inside.places.thread_lines import ThreadLooks
from profkit.capture.inside.record import host_watch
from profkit.capture.inside.record.host_watch import Handed
from profkit.capture.inside.starts import WorkerStarts


def test_waits_for_a_batch_in_a_queue_are_noted_with_the_thread_that_puts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_watch, "_SHORTEST_NS", 0)
    usual = (queue.Queue.get, queue.Queue.put, Future.result)
    seen = Handed()
    seen.begin()
    line: queue.Queue[Any] = queue.Queue()
    natives: list[int] = []

    def feed() -> None:
        natives.append(threading.get_native_id())
        for item in ("a message", {"x": torch.zeros(3)}, torch.tensor(1.0)):
            line.put(item)

    feeder = threading.Thread(target=feed)
    feeder.start()
    for _ in range(3):
        line.get()
    feeder.join()
    future: Future[Any] = Future()
    future.set_result([torch.zeros(2)])
    future.result()
    seen.end()
    assert [(thread, giver) for thread, _, _, giver in seen.rows] == [
        (threading.get_native_id(), natives[0]),
        (threading.get_native_id(), 0),
    ], "neither a message nor a number is a batch"
    assert all(start <= end for _, start, end, _ in seen.rows)
    assert (queue.Queue.get, queue.Queue.put, Future.result) == usual


def test_batches_inside_objects_are_found_and_no_code_of_theirs_is_called() -> None:
    class Batch:
        def __init__(self) -> None:
            self.x = torch.zeros(2)

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    assert host_watch._is_batch((1, Batch()))
    assert host_watch._is_batch(torch.zeros(2).numpy())
    assert not host_watch._is_batch({"loss": torch.tensor(1.0), "step": 3})


def test_a_thread_of_plain_python_is_seen_at_its_line_with_the_lock() -> None:
    ended = threading.Event()

    def count() -> None:
        total = 0
        while not ended.is_set():
            for one in range(2000):
                total += one

    other = threading.Thread(target=count, name="counts", daemon=True)
    looks = ThreadLooks()
    other.start()
    looks.start()
    for _ in range(400):
        if sum(one["n_looks"] for one in looks.told()) >= 3:
            break
        ended.wait(0.01)
    looks.stop()
    ended.set()
    other.join()
    (told,) = [one for one in looks.told() if one["thread"] == other.native_id]
    assert told["seen_ns"] > 0
    assert looks.saw_work
    assert 0 <= told["held_share"] <= 1
    assert {line["function"] for line in told["lines"]} <= {"count"}


def test_no_thread_looks_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.current_thread()])
    looks = ThreadLooks()
    looks.start()
    assert not looks._looking.is_alive()
    looks.stop()
    assert looks.told() == []


class Loader:
    def __init__(self, num_workers: int, dataset: Any) -> None:
        self.num_workers, self.dataset = num_workers, dataset


class Passes:
    """The iterator of a loader with workers, as far as its starts are asked for."""

    def __init__(self, loader: Any) -> None:
        self.left = 2

    def _shutdown_workers(self) -> None:
        pass

    def _next_data(self) -> int:
        if not self.left:
            self._shutdown_workers()
            raise StopIteration
        self.left -= 1
        return self.left


def passed(loader: Any) -> None:
    one = Passes(loader)
    while True:
        try:
            one._next_data()
        except StopIteration:
            return


def test_starts_of_workers_after_the_first_are_counted_with_the_batches_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dataloader, "_MultiProcessingDataLoaderIter", Passes)
    starts = WorkerStarts()
    starts.install()
    same, once = Loader(2, []), Loader(1, ())
    for _ in range(3):
        starts.n_steps += 6
        passed(same)
    passed(once)
    (told,) = starts.told()
    assert told["steps"] == 12
    assert (told["n_workers"], told["starts"], told["batches"], told["is_rebuilt"]) == (2, 2, 4, False)
    assert told["ns"] > 0
    for _ in range(2):
        passed(Loader(4, {}))
    assert [one["is_rebuilt"] for one in starts.told()] == [False, True]
    starts.remove()
    assert Passes.__init__.__name__ == "__init__"
    assert not hasattr(Passes._next_data, "__wrapped__")
