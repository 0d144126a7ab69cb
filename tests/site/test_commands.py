"""Every command that the README and the site show is run, each in a copy of a folder in which its paths are there."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from profkit.cli import COMMANDS, group
from tests.calling import profkit as called
from tests.conftest import ROOT
from tests.site.commands import PAGES, furnish, named, shown, words_of

NOT_RUN = {
    r"pip install": "installs packages: CI does it in its set-up",
    r"(jq|cat|export|bash|apt-get|gh) ": "a program that is not profkit's",
    r"(py-spy|torchrun) ": "a program that is not profkit's",
    r"npm ": "node's: make report-check calls it",
    r"git ": "a program that is not profkit's",
}
"""By how they begin: commands that no test here runs, each with the reason."""
ONLY_PARSED = {
    r"profkit open": "waits for a browser: tests/export opens one",
    r"profkit .*\.ncu-rep": "NVIDIA's package reads this file: tests/kernels has its tables as CSV",
    r"profkit .*profkit-ncu/": "NVIDIA's package reads this folder: tests/kernels has its tables as CSV",
    r"profkit .*--dask": "needs a cluster: tests/ranks starts one",
    r"profkit .*s3://": "needs a bucket: tests/ranks reads URLs of memory",
    r"profkit .*\.parquet": "pyarrow takes a second: tests/export writes it",
    r"profkit .*--probe ": "needs a probe of that very job: tests/probe has one",
    r"profkit triage profkit-capture/ profkit-nsys": "two recordings of one job: tests/handover has them",
    r"profkit .*edited\.json": "made from report.json by hand: tests/test_verify.py does it",
}
"""Commands whose words are tried, and which other test runs them."""
STARTS_A_JOB = ("run", "capture", "try", "probe", "bench")
MODULES_ALONE = r"python -m (workloads|analyses|tests)\."
"""Programs that take minutes: the module must be there."""
MAY_END = {"triage": {0, 1}, "compare": {0, 1}, "ladder": {0, 1}, "capture": {0}, "run": {0}}
"""A gate that stops is one that works."""

SHOWN = sorted({line for _, line in shown()})
OURS = [line for line in SHOWN if line.startswith("profkit ")]


def told(table: dict[str, str], line: str) -> str:
    return next((why for begins, why in table.items() if re.match(begins, line)), "")


def kept_back(line: str) -> bool:
    return bool(told(ONLY_PARSED, line)) or words_of(line)[1] in STARTS_A_JOB


RUN = [line for line in OURS if not kept_back(line)]
JOBS = list(
    {
        line.partition(" -- ")[0]: line
        for line in OURS
        if words_of(line)[1] in STARTS_A_JOB and not told(ONLY_PARSED, line) and "torchrun" not in line
    }.values()
)
"""One of those that differ only in the program they start; torchrun's ranks are the subject of tests/capture."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    furnish(folder)
    (folder / "report.json").write_text(called("triage", "trace.json.gz", "-f", "json", cwd=folder).stdout)
    return folder


def test_the_pages_show_commands_of_each_kind() -> None:
    pages = {page for page, _ in shown()}
    assert {"README.md", "docs/start.md", "docs/ci.md", "docs/bottlenecks/sync.md", "docs/agents.md"} <= pages
    assert len(RUN) > 40
    assert {words_of(line)[1] for line in JOBS} == set(STARTS_A_JOB)
    assert (
        "profkit compare --baseline runs/baseline/* --candidate runs/candidate/* --fail-on-regression 3% -o report.md"
        in RUN
    )


@pytest.mark.parametrize("line", RUN)
def test_a_command_that_is_shown_runs(line: str, house: Path) -> None:
    words = words_of(line)[1:]
    if words[0] in {"nsys", "ncu"}:
        place = words.index("--") if "--" in words else len(words)
        words = [*words[:place], "--dry-run", *words[place:]]
    if words[:2] == ["verify", "comparison.json"]:  # of the sides that this command names
        (house / "comparison.json").write_text(called("compare", *words[2:], "-f", "json", cwd=house).stdout)
    globbed = [name for word in words for name in spread(word, house)]
    done = called(*globbed, cwd=house)
    assert done.returncode in MAY_END.get(words[0], {0}), done.stderr
    assert done.stdout or done.stderr


def spread(word: str, folder: Path) -> list[str]:
    """What a shell makes of a word with a star in it."""
    if not word.endswith("/*"):
        return [word]
    return sorted(str(path.relative_to(folder)) for path in folder.glob(word))


@pytest.mark.parametrize("line", OURS)
def test_the_words_of_a_command_are_known(line: str, house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(house)
    name, *words = words_of(line)[1:]
    command = group.get_command(click.Context(group), name)
    assert command is not None, name
    command.make_context(name, words)


@pytest.mark.long(25)
@pytest.mark.parametrize("line", JOBS)
def test_a_command_that_starts_a_job_runs(line: str, house: Path, tmp_path: Path) -> None:
    """With a script as small as one can be; `bench` and `try` in few turns, and of the changes one."""
    (tmp_path / "train.py").write_text((house / "train.py").read_text())
    name, *words = words_of(line)[1:]
    fewer = {
        "try": ["--yes", "-n", "3", "--timed-steps", "10"],
        "bench": ["-n", "1"],
        "probe": ["--probed-steps", "40"],
    }
    line_words = [name, *words]
    if name in fewer:
        line_words[line_words.index("--") : line_words.index("--")] = fewer[name]
        if name == "try" and "--only" not in words:
            line_words[1:1] = ["--only", "one_batch"]
    env = dict(os.environ, PYTHONPATH=str(ROOT), PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    done = subprocess.run(
        [sys.executable, "-m", "profkit", *line_words],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("line", [line for line in SHOWN if not line.startswith("profkit ")])
def test_what_is_no_command_of_profkits_is_there_or_has_a_reason(line: str, tmp_path: Path) -> None:
    if made := re.match(r"make ([a-z0-9-]+)", line):
        assert re.search(rf"^{made[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif re.match(MODULES_ALONE, line) or line.startswith("python -m bench.simulated"):
        assert importlib.util.find_spec(words_of(line)[2]) is not None
    elif line.startswith("python -m bench.site scene"):
        env = dict(os.environ, PYTHONPATH=str(ROOT))
        subprocess.run([sys.executable, *words_of(line)[1:]], cwd=tmp_path, env=env, check=True, capture_output=True)
        assert json.loads((tmp_path / words_of(line)[-1]).read_text())["traceEvents"]
    else:
        assert told(NOT_RUN, line), f"no test runs {line!r}: say why in NOT_RUN, or run it"


@pytest.mark.parametrize(("page", "line"), sorted(set(named())))
def test_a_command_in_a_sentence_has_a_name_and_flags_that_exist(page: str, line: str) -> None:
    text = line.partition(" -- ")[0]
    name = text.split()[1].rstrip(".,")
    if name not in COMMANDS:
        assert name in {"...", "COMMAND", "--help", "--version"}, page
        return
    command = group.get_command(click.Context(group), name)
    assert command is not None
    known = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)} | {"-h", "--help"}
    assert {flag.partition("=")[0] for flag in re.findall(r"(?<=\s)--?[a-z][\w-]*=?", text)} <= known, page


def test_every_exemption_is_needed() -> None:
    for begins in NOT_RUN:
        if begins.startswith(("pip", "(jq", "npm", "git", "(py")):
            continue
        assert any(re.match(begins, line) for line in SHOWN), begins
    unused = [begins for begins in ONLY_PARSED if not any(re.match(begins, line) for line in OURS)]
    assert unused == []


def test_the_pages_are_those_of_the_site() -> None:
    assert len(PAGES) > 30
