"""The folder of a capture while others, the script or the disk do what they like: nothing strays, nothing is mixed."""

import errno
import gzip
import json
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from profkit.capture import place, runner
from profkit.capture.beside import files
from profkit.capture.inside import exits, export, store
from profkit.capture.options import Options
from profkit.capture.outcome import outcomes_of, put_aside
from tests.capture.test_command import RAW
from tests.capture.test_hostile import recorded

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

OTHER = "0123456789abcdef" * 2
FULL = OSError(errno.ENOSPC, "No space left on device")
FACTS = {"label": "rank0", "n_steps": 1, "baseline": {"n": 0}, "reason": ""}


@pytest.fixture
def options(tmp_path):
    """Give a capture into a folder of its own; no part of it is left behind in this process."""
    yield Options(folder=str(tmp_path / "out"), capture_id=OTHER, command="python mine.py")
    store.forget_parts()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(params=["descriptors", "names of descriptors", "neither"])
def system(request, monkeypatch):
    """A system with descriptors of folders, one without names for them (macOS), one with neither."""
    if request.param != "descriptors":
        monkeypatch.setattr(place, "_DESCRIPTORS", Path("/proc/self/nothing"))
    if request.param == "neither":
        monkeypatch.setattr(os, "supports_dir_fd", frozenset())
        monkeypatch.setattr(os, "supports_fd", frozenset())
        real = os.open

        def of_files_alone(path, flags, mode=0o777, *, dir_fd=None):
            if dir_fd is not None or Path(path).is_dir():
                raise PermissionError(errno.EACCES, "no descriptors of folders here", str(path))
            return real(path, flags, mode)

        monkeypatch.setattr(os, "open", of_files_alone)
        monkeypatch.setattr(shutil, "_use_fd_functions", False)


# --- the disk, the script, the system


def test_an_export_that_fails_leaves_the_disk_to_the_script(options, system):
    store.join(options)

    def export_half():
        with store.raw_file(options, "rank0") as path:
            path.write_bytes(b"half of it")
            raise FULL

    with pytest.raises(OSError, match="No space left"):
        export_half()
    assert names(place.work_folder(options.folder, OTHER)) == ["lock"]


def test_a_capture_works_on_every_system(options, system):
    with runner.holding(options) as problem:
        assert problem == ""
        with store.raw_file(options, store.claim_label(options)) as path:
            path.write_text(RAW)
        store.write_facts(options, FACTS)
        (one,) = outcomes_of(options)
        store.leave(options)
    assert one["trace"] == "rank0.pt.trace.json.gz"
    assert names(Path(options.folder)) == ["capture.json", "rank0.pt.trace.json.gz"]


def test_a_work_folder_that_was_exchanged_gets_nothing(options, system, tmp_path):
    store.join(options)
    (tmp_path / "mine" / OTHER).mkdir(parents=True)
    work = Path(options.folder) / ".profkit"
    work.rename(tmp_path / "moved")
    work.symlink_to(tmp_path / "mine")
    for act in (store.claim_label, lambda _: store.write_facts(options, FACTS), outcomes_of, enter_export):
        with pytest.raises(PermissionError, match="somebody has put another in its place"):
            act(options)
    store.leave(options)
    assert names(tmp_path / "mine" / OTHER) == []


def enter_export(options):
    with store.raw_file(options, "rank0"):
        pytest.fail("not reached")


def test_a_relative_folder_is_that_of_the_beginning(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    options = Options(folder="out", capture_id=OTHER)
    work = store.join(options)
    monkeypatch.chdir("elsewhere")
    with store.raw_file(options, "rank0") as path:
        path.write_text("{}")
    store.leave(options)
    assert work == tmp_path / "out" / ".profkit" / OTHER
    assert names(work) == ["lock", "rank0.raw"]
    assert names(tmp_path / "elsewhere") == []


def test_a_descriptor_that_the_script_closed_is_the_scripts(options, tmp_path):
    hold = place.join(options.folder, OTHER)
    number = hold._descriptor
    os.close(number)
    (tmp_path / "theirs").touch()
    theirs = os.open(tmp_path / "theirs", os.O_RDONLY)
    if theirs != number:
        os.dup2(theirs, number)
    hold.release()
    os.fstat(number)
    for one in {theirs, number}:
        os.close(one)


def test_a_child_of_a_process_whose_capture_failed_has_no_part_in_it(options):
    store.note_problem(options, "this torch is too old")
    (until, end), (begun, ready) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.write(ready, b"x")
        os.read(until, 1)
        os._exit(0)
    os.read(begun, 1)
    store.leave(options)
    assert not Path(options.folder, ".profkit").exists()
    os.close(end)
    os.waitpid(child, 0)
    for one in (until, begun, ready):
        os.close(one)


def test_facts_of_a_capture_that_is_over_make_no_folder(options):
    store.join(options)
    store.leave(options)
    with pytest.raises(FileNotFoundError):
        store.write_facts(options, FACTS)
    assert names(Path(options.folder)) == []


def test_a_disk_that_is_full_after_the_first_trace_costs_no_other(tmp_path, monkeypatch):
    work = recorded(tmp_path)
    (work / "8.facts").write_text((work / "7.facts").read_text().replace("rank0", "rank1"))
    (work / "rank1.raw").write_text(RAW)

    def full(path, data, **_):
        raise FULL

    monkeypatch.setattr(files(), "write_whole", full)
    found = export.finish(work, tmp_path)
    assert [one["trace"] for one in found] == ["rank0.pt.trace.json.gz", "rank1.pt.trace.json.gz"]
    assert len(list(tmp_path.glob("*.gz"))) == 2


@pytest.mark.parametrize("one_by_one", [False, True])
def test_ranks_of_two_containers_may_have_one_process_id(options, monkeypatch, one_by_one):
    work = store.join(options)
    for number in range(2):
        monkeypatch.setattr(place, "_space", lambda number=number: f"container{number}")
        monkeypatch.setenv("RANK", str(number))
        store.write_facts(options, {**FACTS, "label": f"rank{number}"})
        (work / f"rank{number}.raw").write_text(RAW)
        if one_by_one:
            outcomes_of(options, only=place.process_name(os.getpid()))
            assert not (work / f"rank{number}.raw").exists()
    if not one_by_one:
        outcomes_of(options)
    folder = Path(options.folder)
    assert {f"rank{number}.pt.trace.json.gz" for number in range(2)} < set(names(folder))
    told = json.loads((folder / "capture.json").read_text())["ranks"]
    assert [(one["rank"], one["pid"]) for one in told] == [(0, os.getpid()), (1, os.getpid())]


def test_an_export_that_a_killed_process_left_unfinished_goes(tmp_path):
    work = recorded(tmp_path)
    (work / ("ab" * 16)).mkdir()
    (work / ("ab" * 16) / "rank1.raw").write_text("half of it")
    (line,) = put_aside(tmp_path)
    left = tmp_path / ".profkit-left" / OTHER
    assert f"profkit triage {left}" in line
    assert names(left) == ["capture.json", "rank0.pt.trace.json.gz"]


def test_a_pipe_in_the_place_of_the_folder_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "out")
    old = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits"))
    signal.alarm(5)
    try:
        with place.alone(tmp_path / "out"):
            pass
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def test_where_children_cannot_be_guarded_one_line_says_so_before(options, monkeypatch, capfd):
    from profkit.capture.inside.record.recorder import Recorder

    looked_up = []
    monkeypatch.setattr(exits, "_CHILD_END", [])
    monkeypatch.setattr(store, "_SAID", set())
    monkeypatch.setattr(exits, "_of_c", lambda name: looked_up.append(name) or (None if name == "on_exit" else print))
    before = []
    for _ in range(2):
        recorder = Recorder(options, first_step=0, n_warmup=1)
        monkeypatch.setattr(recorder._profiler, "start", lambda: before.append(capfd.readouterr()))
        recorder.start()
    assert (before[0].out, before[0].err) == ("", f"profkit: {exits.CANNOT_GUARD}\n")
    assert before[1].err == ""
    store._SAID.clear()
    store.say_once(options, "children", exits.CANNOT_GUARD)  # another rank of the same capture
    assert capfd.readouterr().err == ""
    assert "on_exit" in looked_up
    assert exits._CHILD_END == []


# --- a neighbour, who can write into the folder above, and into the one of the traces


def as_neighbour(folder, act):
    """Do something as another user, in a process of their own whose working folder this is."""
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            os.chdir(folder)
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            act()
            status = 0
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def forged(work):
    """Lay what looks like a capture of ours into a folder."""
    Path(work).mkdir(parents=True)
    name = place.process_name(os.getppid())
    facts = {**FACTS, "pid": os.getppid(), "process": name, "rank": 0, "command": "FORGED"}
    Path(work, f"{name}.facts").write_text(json.dumps(facts))
    Path(work, "7.facts").write_text(json.dumps({**facts, "pid": 7, "label": "rank1"}))
    Path(work, "rank0.raw").write_text(RAW.replace("aten::add", "FORGED"))
    Path(work, "rank1.raw").write_text(RAW.replace("aten::add", "FORGED"))
    Path(work, "lock").touch()


def a_link_for_the_folder():
    Path("out").rename("moved")
    Path("out").symlink_to("mine")


def a_folder_for_the_folder():
    Path("out").rename("moved")
    forged(f"out/.profkit/{OTHER}")


def a_link_for_the_work_folders():
    Path("out/.profkit").rename("out/moved")
    Path("out/.profkit").symlink_to("../mine")


def folders_for_the_work_folders():
    Path("out/.profkit").rename("out/moved")
    forged(f"out/.profkit/{OTHER}")


def a_link_for_the_work_folder():
    Path("out/.profkit").rename("out/moved")
    Path("out/.profkit").mkdir()
    Path(f"out/.profkit/{OTHER}").symlink_to("../../mine")


def links_for_what_will_be_written():
    for name in ("capture.json", "rank0.pt.trace.json.gz", ".profkit-left"):
        Path(f"out/{name}").symlink_to("../mine/precious")


ATTACKS = (
    a_link_for_the_folder,
    a_folder_for_the_folder,
    a_link_for_the_work_folders,
    folders_for_the_work_folders,
    a_link_for_the_work_folder,
    links_for_what_will_be_written,
)


def captured(options, step):
    """Make a capture as runner and script do together; `step` is called between what they do. Gives the facts."""
    found = []
    with runner.holding(options) as problem:
        assert problem == ""
        step(0)
        with suppress(OSError):
            store.note_begun(options)
            step(1)
            label = store.claim_label(options)
            with store.raw_file(options, label) as path, path.open("w") as file:
                file.write(RAW[:20])
                step(2)
                file.write(RAW[20:])
            step(3)
            store.write_facts(options, {**FACTS, "label": label})
        store.leave(options)
        step(4)
        with suppress(OSError):
            found = outcomes_of(options)
        step(5)
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may act as another user")
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("when", range(6))
def test_what_a_neighbour_exchanges_is_neither_written_into_nor_read(attack, when, options, tmp_path):
    tmp_path.chmod(0o777)
    out, mine = Path(options.folder), tmp_path / "mine"
    out.mkdir()
    out.chmod(0o777)
    (mine / OTHER).mkdir(parents=True)
    (mine / "precious").write_text("mine")
    reached = []

    def step(number):
        reached.append(number)
        if number == when and (attack is not links_for_what_will_be_written or when < 5):
            as_neighbour(tmp_path, attack)

    found = captured(options, step)
    assert when in reached
    assert (names(mine), names(mine / OTHER)) == ([OTHER, "precious"], [])
    assert (mine / "precious").read_text() == "mine"
    assert "FORGED" not in json.dumps(found)
    with suppress(OSError):
        put_aside(out)
    for path in tmp_path.rglob("*.gz"):
        assert path.is_symlink() or b"FORGED" not in gzip.decompress(path.read_bytes())
    assert (mine / "precious").read_text() == "mine"
    assert (names(mine), names(mine / OTHER)) == ([OTHER, "precious"], [])
