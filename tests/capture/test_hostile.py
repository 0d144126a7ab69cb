"""What others leave beside a capture, and children that a script forks: nothing is mixed, followed or hung."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from profkit.capture import lines, outcome, place, runner
from profkit.capture.inside import export
from profkit.capture.options import Options
from profkit.errors import TraceNotFoundError
from profkit.ingest.discover import find_sources
from profkit.ingest.kineto.reader import read_trace
from tests.capture.running import ENVIRONMENT, SCRIPTS, capture, manifest, names, run, trace
from tests.capture.test_command import RAW
from tests.special import within
from tests.told import instead

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

OTHER = "0123456789abcdef" * 2
SEVEN = (sys.executable, "-c", "print(7)")

FORKS = str(SCRIPTS / "forks.py")
FORKS_OUT = """\
child exit 5
inside 1280
child raise
raise 256
child again
child exit 9
status 2304
again 2048
child end
end 0
parent
"""


@pytest.mark.long(6)
def test_forked_children_end_as_they_would_have(tmp_path):
    """With torch.profiler alone a child that is forked after it and leaves by `exit` hangs for ever."""
    done = capture(tmp_path / "out", "timeout", "-s", "KILL", "60", sys.executable, FORKS)
    assert (done.code, done.out) == (0, FORKS_OUT), done.err
    assert done.err.count("RuntimeError: as a script may") == 1
    assert names(trace(tmp_path / "out"))[0] == "ProfilerStep#15"


# --- captures and folders


def recorded(folder, capture_id=OTHER, label="rank0", pid=7):
    """Leave what a process has recorded, as if nobody had come to make a trace of it."""
    hold = place.join(folder, capture_id)
    facts = {"pid": pid, "rank": 0, "label": label, "command": "python other.py", "n_steps": 1, "baseline": {"n": 0}}
    (hold.work / f"{pid}.facts").write_text(json.dumps(facts))
    (hold.work / "rank0.raw").write_text(RAW)
    hold.release()
    return hold.work


def test_what_a_killed_capture_left_is_put_aside_and_is_no_trace_of_the_next(tmp_path):
    out = tmp_path / "out"
    recorded(out)
    done = capture(out, *SEVEN)
    left = out / ".profkit-left" / OTHER
    assert done.out == "7\n"
    assert f"profkit: a capture into {out} was killed; what it recorded is in {left}" in done.err
    assert "never imported torch" in done.err
    assert sorted(path.name for path in out.iterdir()) == [".profkit-left", "capture.json"]
    assert manifest(out)["ranks"] == []
    assert sorted(path.name for path in left.iterdir()) == ["capture.json", "rank0.pt.trace.json.gz"]
    assert read_trace(find_sources([str(left)])[0]).meta.metadata["profkit_command"] == "python other.py"
    with pytest.raises(TraceNotFoundError):
        find_sources([str(out)])


@pytest.mark.long(4)
def test_a_script_whose_runner_was_killed_is_not_taken_for_the_next_one(tmp_path):
    out = tmp_path / "out"
    line = [sys.executable, "-m", "profkit", "capture", "-o", str(out), "--", sys.executable, "-c", LONG]
    runner = subprocess.Popen(line, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert runner.stdout.readline() == "recorded\n"
    runner.send_signal(signal.SIGKILL)
    busy = capture(out, *SEVEN)
    assert f"another capture is writing into {out}: this one writes into {out}-2" in busy.err
    runner.stdin.write("go\n")  # the script's own stdin
    runner.stdin.flush()
    assert runner.stdout.read() == "done\n"
    runner.stdin.close()
    runner.stdout.close()
    runner.wait()
    until = time.monotonic() + 20
    while place.is_busy(out) and time.monotonic() < until:
        time.sleep(0.05)
    done = capture(out, *SEVEN)
    assert "was killed; what it recorded is in" in done.err
    assert not list(out.glob("*.gz"))
    assert len(list(out.glob(".profkit-left/*/rank0.pt.trace.json.gz"))) == 1


LONG = """
from tests.capture import no_dynamo
import sys, torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print("recorded", flush=True)
sys.stdin.readline()
print("done")
"""


def test_two_captures_do_not_write_into_one_folder(tmp_path):
    out = tmp_path / "out"
    hold = place.join(out, OTHER)
    strict = capture(out, *SEVEN, options=("--strict",))
    assert (strict.code, strict.out) == (2, "")
    assert f"another capture is writing into {out}" in strict.err
    done = capture(out, *SEVEN)
    assert done.out == "7\n"
    assert f"profkit: another capture is writing into {out}: this one writes into {out}-2\n" in done.err
    assert (tmp_path / "out-2" / "capture.json").exists()
    assert [path.name for path in out.iterdir()] == [".profkit"]
    place.leave(hold)
    assert list(out.iterdir()) == []


def test_a_trace_that_no_capture_wrote_is_not_replaced(tmp_path):
    theirs = [tmp_path / "rank0.pt.trace.json.gz", tmp_path / "rank7.pt.trace.json.gz"]
    for path in theirs:
        path.write_bytes(b"mine")
    done = capture(tmp_path, *SEVEN)
    assert (done.code, done.out) == (2, "")
    assert "already holds a trace, rank0.pt.trace.json.gz," in done.err
    assert capture(tmp_path, *SEVEN, options=("--overwrite",)).out == "7\n"
    assert [path.read_bytes() for path in theirs] == [b"mine"] * 2
    (tmp_path / "rank0_x.pt.trace.json.gz").write_bytes(b"a capture's")
    listed = [{"trace": "rank0_x.pt.trace.json.gz"}, {"trace": "../theirs"}, {"trace": "rank0.pt.trace.json.gz/x"}]
    export.write_manifest(str(tmp_path), export.manifest(listed, capture_id=OTHER, command="", details={}))
    assert capture(tmp_path, *SEVEN, options=("--overwrite",)).out == "7\n"
    assert sorted(tmp_path.glob("*.gz")) == theirs


@pytest.mark.parametrize("text", ['{"schema": "mine"}', '{"schema": "profkit.capture/1", "ranks": [{"places": [1]}]}'])
def test_a_manifest_that_profkit_did_not_write_stays(text, tmp_path):
    (tmp_path / "capture.json").write_text(text)
    done = capture(tmp_path, *SEVEN, options=("--overwrite",))
    assert (done.code, done.out) == (2, "")
    assert f"profkit did not write {tmp_path / 'capture.json'}" in done.err


@pytest.mark.parametrize("overwrites", [False, True])
def test_a_link_in_the_place_of_a_trace_is_not_written_through(overwrites, tmp_path):
    (tmp_path / "victim").write_bytes(b"mine")
    out = tmp_path / "out"
    work = recorded(out)
    for name in ("rank0.pt.trace.json.gz", "capture.json"):
        (out / name).symlink_to(tmp_path / "victim")
    (one,) = export.finish(work, out, overwrites=overwrites)
    export.write_manifest(str(out), export.manifest([one], capture_id=OTHER, command="", details={}))
    assert (tmp_path / "victim").read_bytes() == b"mine"
    assert one["trace"] == ("rank0" if overwrites else "rank0_01234567") + ".pt.trace.json.gz"
    assert (out / one["trace"]).is_symlink() is False
    assert len(export.read_manifest(out)["ranks"]) == 1


@pytest.mark.parametrize("label", ["../rank0", "rank0/../../x", "rank0\n", ""])
def test_a_name_that_no_capture_gives_is_no_name_of_a_file(label, tmp_path):
    work = recorded(tmp_path / "out", label=label)
    (one,) = export.finish(work, tmp_path / "out")
    assert "trace" not in one
    assert not list(tmp_path.rglob("*.gz"))


def test_facts_that_are_no_file_are_not_waited_for(tmp_path):
    work = recorded(tmp_path / "out")
    os.mkfifo(work / "8.facts")
    (work / "9.facts").write_text("[" * 100_000)
    assert [one.get("trace", one.get("reason", ""))[:11] for one in export.finish(work, tmp_path / "out")] == [
        "rank0.pt.tr",
        "8.facts can",
        "9.facts can",
    ]


def test_odd_facts_of_a_rank_cost_no_other_rank_its_trace(tmp_path):
    draw = random.Random(1)  # noqa: S311
    steps = {"n": 1, "mean_ns": 5, "median_ns": 5, "steps_ns": [5]}
    told = {"first_step": 1, "n_steps": 1, "step_source": "x", "stop_ns": 1, "export_ns": 1, "rank": 0, "pid": 7}
    told |= {**dict.fromkeys(("baseline", "profiled", "after"), steps), "fetches": [[9, 0, 1, 2, 8]]}
    told |= {"threads": [{"thread": 9}], "thread_lines": [{"thread": 9}], "handed": [[7, 1, 2, 9]]}
    told |= {"places": {"steps": steps}, "counters": [[1, {"tokens": 5}]], "pauses": [[7, 1, 2, 0]]}
    told |= {
        "loops": [{"optimizers": ["Adam"], "first_optimizer": 1, "n_calls": 5, "spent_ns": 9, "is_recorded": True}]
    }
    odd = [{**told, key: other} for key, value in told.items() for other in instead(value)]
    for number, facts in enumerate(draw.sample(odd, 150)):
        out = tmp_path / str(number)
        work = recorded(out)
        (work / "rank1.raw").write_text(RAW)
        (work / "7.facts").write_text(json.dumps({**facts, "label": "rank0", "n_seen": 9}))
        (work / "8.facts").write_text(json.dumps({**told, "label": "rank1", "rank": 1, "pid": 8}))
        hold = place.join(out, OTHER)
        kept = outcome.outcomes_of(Options(folder=str(out), capture_id=OTHER))
        hold.release()
        assert any(one.get("trace") == "rank1.pt.trace.json.gz" for one in kept), facts
        assert len(lines.told(kept, out)) == 2, "no rank is lost unseen"
        for path in out.glob("rank*.gz"):
            read_trace(find_sources([str(path)])[0])


def test_a_work_folder_that_is_a_link_costs_the_trace_alone(tmp_path):
    (tmp_path / "elsewhere" / OTHER).mkdir(parents=True)
    out = tmp_path / "out"
    out.mkdir()
    (out / ".profkit").symlink_to(tmp_path / "elsewhere")
    done = capture(out, *SEVEN)
    assert (done.code, done.out) == (0, "7\n")
    assert f"cannot write to {out}" in done.err
    assert [path.name for path in (tmp_path / "elsewhere").rglob("*")] == [OTHER]


def test_ranks_that_begin_a_session_each_are_one_capture(tmp_path):
    """The second begins when the first is over, and again when both are, as a script that is run twice."""
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29517"}
    done = run(sys.executable, "-c", SESSIONS, cwd=tmp_path, **job)
    assert (done.code, done.out) == (0, "[0]\n[0, 1]\n[1, 0]\n[0, 1]\n"), done.err
    found = sorted(path.name for path in (tmp_path / "out").iterdir())
    traces = [f"rank{rank}.{kind}.json.gz" for rank in (0, 1) for kind in ("places", "pt.trace")]
    assert found == ["capture.json", *traces]


SESSIONS = """
from tests.capture import no_dynamo
import json, os, torch
from profkit.capture import session
for rank in (0, 1, 0, 1):
    if os.fork() == 0:
        os.environ["RANK"] = str(rank)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with session("out", baseline=2, steps=2):
            for _ in range(20):
                model(torch.ones(2, 4)).sum().backward()
                optimizer.step()
        os._exit(0)
    os.wait()
    print([one["rank"] for one in json.load(open("out/capture.json"))["ranks"]])
"""


def test_a_session_replaces_its_own_captures_and_nothing_else(tmp_path):
    out = tmp_path / "out"
    options = Options(folder=str(out), capture_id=OTHER)
    work = recorded(out)
    (out / "rank3.pt.trace.json.gz").write_bytes(b"mine")
    assert not export.is_taken(options, out)
    (one,) = export.finish(work, out)
    export.write_manifest(str(out), export.manifest([one], capture_id="f" * 32, command="", details={}))
    assert export.is_taken(options, out)
    export.remove_published(out)
    assert [path.name for path in out.glob("*.*")] == [".profkit", "rank3.pt.trace.json.gz"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_what_another_user_put_in_the_way_is_not_written_into(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    os.chown(tmp_path / "out", 4711, 4711, follow_symlinks=False)
    assert "a link that another user has made" in runner.checked_folder(tmp_path / "out")
    work = place.work_folder(tmp_path / "mine", OTHER)
    work.mkdir(parents=True)
    os.chown(work, 4711, 4711)
    with pytest.raises(PermissionError, match="it belongs to another user"):
        place.join(tmp_path / "mine", OTHER)
    assert [*(tmp_path / "elsewhere").iterdir(), *work.iterdir()] == []


def test_a_forked_child_has_no_part_in_its_parents_capture(tmp_path):
    """A daemon that a script leaves behind would hold the folder for ever."""
    hold = place.join(tmp_path, OTHER)
    ours, theirs = os.pipe()
    if os.fork() == 0:
        hold.release()
        os.close(theirs)
        os.read(ours, 1)
        os._exit(0)
    assert place.is_busy(tmp_path)
    hold.release()
    hold.release()
    until = time.monotonic() + 10
    while place.is_busy(tmp_path) and time.monotonic() < until:
        time.sleep(0.01)
    assert not place.is_busy(tmp_path)
    os.close(theirs)
    os.close(ours)
    os.wait()


# --- the temporary folder


@pytest.mark.long(7)
def test_nothing_is_left_in_the_temporary_folder(tmp_path):
    plain = str(SCRIPTS / "plain.py")
    with TemporaryDirectory() as temporary:  # a short name: workers put sockets there, whose names have 107 characters
        done = capture(tmp_path / "out", sys.executable, plain, "40", "2", "os_exit", TMPDIR=temporary)
        assert done.code == 5, done.err
        assert list(Path(temporary).glob("profkit-*")) == []


def test_fetches_of_a_killed_capture_are_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    recorded(tmp_path / "out")
    place.fetch_folder(7, OTHER).mkdir()
    place.fetch_folder(7, "f" * 32).mkdir()
    place.fetch_folder(8, OTHER).symlink_to(tmp_path / "out")
    place.set_aside(tmp_path / "out")
    found = sorted((tmp_path / "tmp").iterdir())
    assert found == [place.fetch_folder(7, "f" * 32), place.fetch_folder(8, OTHER)]


def test_a_folder_for_fetches_that_somebody_else_made_is_not_used(tmp_path, monkeypatch):
    from profkit.capture.inside import loader

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "victim").mkdir()
    place.fetch_folder(os.getpid(), OTHER).symlink_to(tmp_path / "victim")
    log = loader.FetchLog(OTHER)
    with pytest.raises(FileExistsError):
        log.open()
    log.shut()
    log.delete()
    assert (log.rows(), list((tmp_path / "victim").iterdir())) == ([], [])
    monkeypatch.setattr(os, "getppid", os.getpid)
    (tmp_path / "victim" / "open").mkdir()
    worker = loader._Worker(OTHER)
    assert worker.is_wanted()
    worker.write(0, 1, 2, 3)
    assert list((tmp_path / "victim" / "open").iterdir()) == []


def test_rows_are_read_from_files_up_to_a_bound(tmp_path, monkeypatch):
    from profkit.capture.inside import loader

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(loader, "_MOST_ROWS", 2)
    log = loader.FetchLog(OTHER)
    log.open()
    (tmp_path / "victim").write_bytes(b"\0" * 64)
    rows = place.fetch_folder(os.getpid(), OTHER) / "open"
    (rows / "11.rows").write_bytes(b"\1" * (3 * 32 + 5))
    (rows / "12.rows").symlink_to(tmp_path / "victim")
    (rows / "x.rows").write_bytes(b"\1" * 32)
    os.mkfifo(rows / "13.rows")
    log.shut()
    assert [row[0] for row in log.rows()] == [11, 11]
    log.delete()
    assert [path.name for path in tmp_path.iterdir()] == ["victim"]


def test_fetches_of_a_recording_that_begins_anew_are_in_its_own_files(tmp_path, monkeypatch):
    from profkit.capture.inside import loader

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(os, "getppid", os.getpid)
    log, worker = loader.FetchLog(OTHER), loader._Worker(OTHER)
    for again in range(2):
        log.open()
        assert worker.is_wanted()
        worker.write(0, again, 2, 3)
        log.shut()
        assert [row[2] for row in log.rows()] == [again]
        log.delete()
        assert not worker.is_wanted()


def test_an_export_does_not_follow_a_work_folder_that_was_exchanged(tmp_path):
    hold = place.join(tmp_path, OTHER, is_first=True)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    hold.work.rename(tmp_path / "moved")
    hold.work.mkdir()
    (hold.work / "rank0.raw").symlink_to(victim)
    with pytest.raises(PermissionError, match="somebody has put another"), hold.hidden_folder():
        pytest.fail("not reached")
    hold.release()
    assert victim.read_text() == "mine"


def test_an_export_lies_in_the_work_folder_afterwards(tmp_path):
    hold = place.join(tmp_path, OTHER, is_first=True)
    with hold.hidden_folder() as folder:
        (folder / "rank0.raw").write_text("{}")
        real = folder.resolve()  # it is given by its descriptor
        assert (real.parent, len(real.name)) == (hold.work, 32)
    assert (hold.work / "rank0.raw").read_text() == "{}"
    assert not real.exists()
    hold.release()


def test_a_work_folder_that_anybody_may_write_into_is_not_used(tmp_path):
    (tmp_path / ".profkit").mkdir()
    (tmp_path / ".profkit").chmod(0o777)
    with pytest.raises(PermissionError, match="anybody may write"):
        place.join(tmp_path, OTHER, is_first=True)
    assert list((tmp_path / ".profkit").iterdir()) == []


def test_facts_follow_no_link(tmp_path):
    from profkit.capture.inside import store

    options = Options(folder=str(tmp_path), capture_id=OTHER)
    work = store.join(options)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (f"{place.process_name(os.getpid())}.facts", f"{place.process_name(os.getpid())}.partial"):
        (work / name).symlink_to(victim)
    store.write_facts(options, {"reason": ""})
    assert victim.read_text() == "mine"
    store.leave(options)


@pytest.mark.parametrize("kind", ["pipe", "link", "nothing", "file"])
def test_an_export_is_whole_if_it_is_a_file_of_our_own(kind, tmp_path):
    from profkit.capture.inside.record.recorder import _is_whole

    export, other = tmp_path / "rank0.raw", tmp_path / "other"
    other.write_text("{}")
    if kind == "pipe":
        os.mkfifo(export)
    elif kind == "link":
        export.symlink_to(other)
    elif kind == "file":
        export.write_text("{}")
    found = within(5, lambda: _is_whole(export))
    assert isinstance(found, OSError) if kind in ("pipe", "link") else found is (kind == "file")
