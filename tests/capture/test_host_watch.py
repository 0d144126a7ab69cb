"""What a capture reads of the scheduler: files as Linux writes them, and this process."""

import os
import threading
from pathlib import Path

import pytest

pytest.importorskip("torch")

from profkit.capture.inside.record import host_watch
from profkit.capture.inside.record.host_watch import HostWatch

STATUS = "Name:\tpython\nvoluntary_ctxt_switches:\t{}\nnonvoluntary_ctxt_switches:\t{}\n"


def tell(folder: Path, thread: int, *, run: int, wait: int, switches: tuple[int, int] = (0, 0)) -> None:
    """A thread of /proc/self/task."""
    (folder / str(thread)).mkdir(exist_ok=True)
    (folder / str(thread) / "schedstat").write_text(f"{run} {wait} 7\n")
    (folder / str(thread) / "status").write_text(STATUS.format(*switches))


def gone(folder: Path, thread: int) -> None:
    for file in (folder / str(thread)).iterdir():
        file.unlink()
    (folder / str(thread)).rmdir()


def test_totals_are_of_the_time_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread ends meanwhile and another begins: neither takes what is not of these steps."""
    threads = tmp_path / "task"  # nothing but threads, as in /proc: folders are listed in any order
    threads.mkdir()
    monkeypatch.setattr(host_watch, "_THREADS", threads)
    monkeypatch.setattr(host_watch, "_QUOTA", tmp_path)
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    mine = threading.get_native_id()
    tell(threads, mine, run=1000, wait=50, switches=(5, 1))
    tell(threads, mine + 1, run=10**12, wait=10**12)
    watch = HostWatch()
    watch.begin()
    gone(threads, mine + 1)
    tell(threads, mine + 2, run=30, wait=4)
    tell(threads, mine, run=1600, wait=350, switches=(6, 42))
    told = watch.end()["scheduling"]
    assert (told["run_ns"], told["wait_ns"]) == (600, 300)
    assert (told["voluntary_switches"], told["involuntary_switches"]) == (1, 41)
    assert (told["all_run_ns"], told["all_wait_ns"]) == (630, 304)
    assert told["quota_millicores"] == 2500
    assert told["all_voluntary_switches"] >= 0


def test_a_machine_that_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_watch, "_THREADS", tmp_path / "none")
    monkeypatch.setattr(host_watch, "_QUOTA", tmp_path / "none")
    watch = HostWatch()
    watch.begin()
    told = watch.end()["scheduling"]
    assert not {"run_ns", "all_run_ns", "involuntary_switches", "quota_millicores"} & set(told)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux")
def test_ranks_share_cores_unless_they_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert host_watch._machine()["ranks"] == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0} if pid == 0 else {0, 1})
    assert host_watch._machine()["ranks"] == 1
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    assert host_watch._machine()["ranks"] == 1


STAT = "cpu  9 9 9 9 9\ncpu0 5 0 5 {} 20 0 0\ncpu1 5 0 5 {} 0 0 0\ncpu7 0 0 0 900 900\nintr 1 cpu 2\n"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux")
def test_the_idle_time_of_the_cores_that_it_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_watch, "_STAT", tmp_path / "stat")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    (tmp_path / "stat").write_text(STAT.format(100, 200))
    watch = HostWatch()
    watch.begin()
    (tmp_path / "stat").write_text(STAT.format(130, 240))
    assert watch.end()["scheduling"]["idle_ns"] == 70 * 10**7
    (tmp_path / "stat").write_text("cpu0 5 0 5 1 2\n")
    assert host_watch._idle_ns() is None, "a core is missing"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux")
def test_hyper_threads_of_a_core_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_watch, "_CPUS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert host_watch._machine()["physical"] == 4, "where nobody tells"
    for one in range(4):
        (tmp_path / f"cpu{one}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{one}" / "topology" / "thread_siblings_list").write_text(f"{one % 2},{one % 2 + 2}\n")
    assert host_watch._machine()["physical"] == 2
