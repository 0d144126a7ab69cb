"""`profkit info FOLDER`: what lies in it, and the command that reads each."""

import json
from pathlib import Path

import pytest

from profkit.cli import group
from profkit.cli.parts.contents import contents, lines
from profkit.errors import TraceNotFoundError, UsageError
from profkit.testing import span, to_json
from tests.ingest.nsys_files import training

TRACE = to_json([span("ProfilerStep#1", 10**9, 2 * 10**9), span("aten::mm", 10**9, 2 * 10**9, cat="cpu_op")])


def capture(folder: Path, *ranks: int) -> None:
    folder.mkdir(parents=True)
    for rank in ranks:
        (folder / f"rank{rank}.pt.trace.json").write_bytes(TRACE)
    told = [{"rank": rank, "trace": f"rank{rank}.pt.trace.json", "n_steps": 12} for rank in ranks]
    (folder / "capture.json").write_text(json.dumps({"schema": "profkit.capture/1", "ranks": told}))


def test_each_capture_has_its_ranks_steps_and_command(tmp_path: Path) -> None:
    capture(tmp_path / "before", 0, 1)
    capture(tmp_path / "after", 0)
    after, before = contents(tmp_path)
    assert (before.what, before.ranks, before.n_steps) == ("capture", (0, 1), 12)
    assert before.run == f"profkit triage {tmp_path}/before"
    assert after.run == f"profkit triage {tmp_path}/after/rank0.pt.trace.json"
    told = " ".join("\n".join(lines(tmp_path, (after, before))).split())
    assert f"{tmp_path}: 2 captures " in told
    assert f"profkit compare {tmp_path}/after/rank0.pt.trace.json {tmp_path}/before" in told


def test_traces_that_may_be_of_several_jobs_are_not_judged_together(tmp_path: Path) -> None:
    for name in ("eager.json", "compiled.json"):
        (tmp_path / name).write_bytes(TRACE)
    (entry,) = contents(tmp_path)
    assert not entry.is_job
    assert entry.run == f"profkit triage {tmp_path}/compiled.json"
    assert "one at a time" in " ".join(" ".join(lines(tmp_path, (entry,))).split())


def test_other_tools_and_other_files_are_told_apart(tmp_path: Path) -> None:
    capture(tmp_path / "runs", 0, 1)
    training().write(tmp_path / "runs" / "profile.sqlite")
    (tmp_path / "settings.json").write_text('{"lr": 0.1}')
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "kernels.csv").write_text('"ID","Kernel Name","Metric Name","Metric Value"\n"0","gemm","x","1"\n')
    told = {entry.format: entry for entry in contents(tmp_path)}
    assert set(told) == {"", "ncu", "nsys", "kineto"}
    assert told[""].run == ""
    assert told["ncu"].run == f"profkit kernels {tmp_path}/kernels.csv"
    assert told["kineto"].run == f"profkit triage '{tmp_path}/runs/*.json'"
    assert any("does nsys confirm" in line for line in lines(tmp_path, tuple(told.values())))


def test_what_a_folder_has_not_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceNotFoundError, match="holds no traces, exports or kernel profiles"):
        contents(tmp_path)
    capture(tmp_path / "one", 0)
    with pytest.raises(UsageError, match="--stats and --lenient are for one trace"):
        group.main(["info", str(tmp_path), "--stats"], standalone_mode=False)


def test_the_command_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture(tmp_path / "one", 0, 1)
    group.main(["info", str(tmp_path)], standalone_mode=False)
    assert "capture, ranks 0-1, 12 steps" in capsys.readouterr().out
    group.main(["info", str(tmp_path), "-f", "json"], standalone_mode=False)
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    assert entry["ranks"] == [0, 1]
