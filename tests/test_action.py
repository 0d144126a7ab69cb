"""The GitHub action: its own steps under bash, on a committed capture."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, rarely
from tests.release.action import ACTION, Job

DATA = str(ROOT / "traces" / "data_cpu.pt.trace.json.gz")
STEPS = ACTION["runs"]["steps"]
INSTALL, TRIAGE = range(2)
COMMAND = re.compile(r"::(error|warning|notice)( [^:]*)?::.+")


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Job:
    """A job in which profkit is installed: this checkout's."""
    job = Job(tmp_path / "job")
    job.command.parent.mkdir(parents=True)
    job.command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m profkit "$@"\n')
    job.command.chmod(0o755)
    return job


def test_annotations_a_file_a_page_and_the_gate(job: Job) -> None:
    done = job.step(TRIAGE, {"paths": DATA, "fail-on": "high"})
    assert done.returncode == 1
    assert "--fail-on high: 1 finding fails; exit code 1" in done.stderr
    lines = done.stdout.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["::notice", "::error"]
    assert "DataLoader" in lines[1]
    assert all(COMMAND.fullmatch(line) for line in lines)
    assert job.outputs() == {"sarif": "profkit.sarif"}
    sarif = json.loads((job.work / "profkit.sarif").read_text())
    assert [result["ruleId"] for result in sarif["runs"][0]["results"]] == ["input.starved"]
    assert "94.0 %" in job.summary()


@pytest.mark.parametrize(("fail_on", "code"), [("", 0), ("never", 0), ("high", 1)])
def test_the_exit_code_is_the_gates(job: Job, fail_on: str, code: int) -> None:
    done = job.step(TRIAGE, {"paths": DATA, "fail-on": fail_on, "format": "github"})
    assert (done.returncode, job.outputs(), job.summary()) == (code, {}, "")


def test_settings_of_the_repository_are_the_gate_without_an_input(job: Job) -> None:
    (job.work / "pyproject.toml").write_text('[tool.profkit]\nfail-on = "high"\n')
    assert job.step(TRIAGE, {"paths": DATA, "format": "github"}).returncode == 1
    assert job.step(TRIAGE, {"paths": DATA, "format": "summary"}).returncode == 1
    assert "94.0 %" in job.summary()


def test_what_a_trace_says_is_no_command_in_the_log(job: Job) -> None:
    done = job.step(TRIAGE, {"paths": DATA, "format": "sarif", "sarif-file": "out.sarif", "fail-on": "high"})
    first, *shown, last = done.stdout.splitlines()
    token = first.removeprefix("::stop-commands::")
    assert re.fullmatch(r"[0-9a-f]{32}", token)
    assert last == f"::{token}::"
    assert "DATA-BOUND" in "\n".join(shown)
    assert done.returncode == 1
    assert job.outputs() == {"sarif": "out.sarif"}


def test_paths_are_one_a_line_and_may_be_patterns(job: Job) -> None:
    for name in ("a b.json.gz", "c.json.gz"):
        (job.work / name).write_bytes(Path(DATA).read_bytes())
    done = job.step(TRIAGE, {"paths": "\n  a b.json.gz  \n\nc*.json.gz\n", "format": "sarif"})
    assert done.returncode == 0, done.stderr
    (run,) = json.loads((job.work / "profkit.sarif").read_text())["runs"]
    assert len(run["results"]) == 2


HOSTILE = ["'\ntouch made\n'", "$(touch made)", '"; touch made; "', "`touch made`", "--output=made", "-o\nmade"]


@pytest.mark.parametrize("text", [HOSTILE[0], *(rarely(2, text) for text in HOSTILE[1:])])
def test_inputs_are_no_part_of_a_script(text: str, job: Job) -> None:
    for name in ("paths", "fail-on", "format", "sarif-file"):
        job.step(TRIAGE, {"paths": DATA, "fail-on": "never", "format": "sarif"} | {name: text})
    job.step(INSTALL, {"paths": DATA, "version": text})
    made = {path.name for path in job.work.iterdir()}
    assert "made" not in made
    assert made <= {"profkit.sarif", text}, "a file is called what sarif-file says, to the letter"


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"paths": " \n"}, "the input paths is empty"),
        ({"paths": DATA, "format": "github html"}, "the input format knows github, sarif and summary"),
        ({"paths": DATA, "sarif-file": "a\nb=c"}, "the input sarif-file is no name of a file"),
        ({"paths": DATA, "sarif-file": ""}, "the input sarif-file is no name of a file"),
    ],
)
def test_an_input_that_makes_no_sense_is_refused(job: Job, inputs: dict[str, str], said: str) -> None:
    done = job.step(TRIAGE, inputs)
    assert (done.returncode, done.stdout) == (2, f"::error title=profkit::{said}\n")
    assert job.outputs() == {}


def test_a_trace_that_cannot_be_read_fails_with_its_own_code(job: Job) -> None:
    done = job.step(TRIAGE, {"paths": "nothing.json"})
    assert done.returncode == 3
    assert "nothing.json" in done.stderr
    assert job.outputs() == {}
    assert not (job.work / "profkit.sarif").exists()


@pytest.mark.parametrize(
    ("version", "installs"), [("", str(ROOT)), ("0.2.0", "profkit==0.2.0"), ("0.3.0rc1", "profkit==0.3.0rc1")]
)
def test_what_is_installed(tmp_path: Path, version: str, installs: str) -> None:
    job = Job(tmp_path / "job")
    log = tmp_path / "log"
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "$@" >>{log}\nif [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi\n'
    )
    python.chmod(0o755)
    done = job.step(INSTALL, {"paths": DATA, "version": version, "python": str(python)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    made, pip = log.read_text().splitlines()
    assert made == f"-m venv {job.command.parent.parent}"
    assert pip == f"-m pip --disable-pip-version-check install --quiet {installs}"
    assert job.outputs() == {"profkit": str(job.command)}


def test_a_version_that_is_none_is_refused(tmp_path: Path) -> None:
    done = Job(tmp_path / "job").step(INSTALL, {"paths": DATA, "version": "0.2.0 --index-url x"})
    assert done.returncode == 2
    assert done.stdout.startswith("::error title=profkit::the input version is no version")


def test_every_input_reaches_a_step_as_a_variable_alone() -> None:
    used = set()
    for step in STEPS:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]
        for value in step["env"].values():
            (name,) = re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value).groups()
            used.add(name)
    assert used == set(ACTION["inputs"])
    ids = {step["id"] for step in STEPS}
    for output in ACTION["outputs"].values():
        step, name = re.fullmatch(r"\$\{\{ steps\.(\w+)\.outputs\.(\w+) \}\}", output["value"]).groups()
        assert step in ids
        assert any(f'echo "{name}=' in one["run"] for one in STEPS if one["id"] == step)


def test_every_input_is_documented() -> None:
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    assert [name for name in [*ACTION["inputs"], *ACTION["outputs"]] if f"| `{name}`" not in text] == []
