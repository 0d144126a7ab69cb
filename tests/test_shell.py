"""What a trace holds never becomes more than words of a command, whatever it holds and whichever command is printed."""

import ast
import gzip
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import profkit
from profkit import signing
from profkit.analyzers.base import Scope, Vendor
from profkit.analyzers.tools import kernel_profile, operators, py_spy_main, recapture, steps_alone, system_timeline
from profkit.errors import UsageError
from profkit.ingest.kineto import source as kineto
from profkit.ingest.nsys import source as nsys
from profkit.model.documents.report import Report
from profkit.model.finding import NextTool
from profkit.pipeline import analyse
from profkit.redact import REDACTED
from profkit.shell import (
    DEFAULT_COMMAND,
    MAX_COMMAND_LENGTH,
    CommandLine,
    clean,
    line_of,
    path_word,
    quoted_path,
    recorded,
    stand_in,
    typed,
)
from profkit.testing import to_json, trace_of
from tests.analyzers import test_findings as drawn
from tests.conftest import ROOT
from tests.handover.jobs import Job, Profile, ncu_csv
from tests.ranks import disk_jobs, scripted

BAD_NAME = "x';>PWN;'\"$(>PWN)`>PWN`\n>PWN\x1b]52;c;x\x07\u202e -rf"
WHOLE = [  # what one program's words look like
    "python train.py",
    "python train.py '$(>PWN)' '; >PWN' '' 'it'\"'\"'s' --x=[1,2]",
    "torchrun --nproc-per-node 4 train.py --name 'a b'",
    "python -c 'import os; os.getpid()'",
    "bash -c '>PWN'",
    "python train.py $HOME *.bin ~ {a,b} !!",
    'python train.py "a $HOME"',
]
BROKEN = [
    "python train.py; >PWN #",
    "python train.py | sh",
    "python train.py & >PWN",
    "python train.py >PWN",
    "python train.py $(>PWN)",
    "python train.py `>PWN`",
    'python train.py "$(>PWN)"',
    'python train.py "a`>PWN`"',
    "python train.py # all",
    "python train.py\n>PWN",
    "python train.py 'it",
    "python train.py \\",
    "python \u202etrain.py",
    "python \x9b31m",
    "python \x1b]52;c;x\x07",
    "-h",
    "--run-recorded train.py",
    "LD_PRELOAD=x.so python train.py",
    "'' train.py",
    "",
    "   ",
    "python " + "x" * MAX_COMMAND_LENGTH,
    "python " + "'" * 1000 + '"' + "'" * (MAX_COMMAND_LENGTH - 1200) + '"',
    None,
    7,
    ["python", "train.py"],
    {"python": "train.py"},
]
STUB = """#!/bin/sh
printf '%s\\0' "${0##*/}" "$@" >> calls
printf '\\n\\0' >> calls
"""


class Shell:
    """A real `sh` in an empty folder, whose PATH holds nothing but programs that write down how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder / "work", folder / "bin"
        self.folder.mkdir()
        self.bin.mkdir()

    def calls(self, line: str) -> list[tuple[str, ...]]:
        """Run a line as pasted and give each program that it started, with its words."""
        name = shlex.split(line)[0]
        stub = self.bin / name
        stub.write_text(STUB)
        stub.chmod(0o755)
        done = subprocess.run(
            ["/bin/sh", "-c", line], cwd=self.folder, env={"PATH": str(self.bin)}, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, b""), (line, done.stderr)
        log = self.folder / "calls"
        told = log.read_text().split("\0\n\0")[:-1]
        log.unlink()
        assert not list(self.folder.iterdir()), line  # no PWN, and nothing else
        return [tuple(call.split("\0")) for call in told]


@pytest.fixture(name="shell")
def _shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def assert_inert(shell: Shell, tools: Iterable[NextTool]) -> None:
    lines = {tool.command for tool in tools}
    assert lines
    for line in lines:
        assert line.isprintable()
        assert shell.calls(line) == [tuple(shlex.split(line))]


def own_mark(command: object) -> str:
    """What a capture of this user puts beside a command."""
    return signing.mark_of(signing.COMMAND, str(command).encode())


def tools_of(report: Report) -> list[NextTool]:
    return [report.verdict.next_tool, *(tool for finding in report.findings for tool in finding.next_tools)]


@pytest.mark.parametrize("text", WHOLE)
def test_a_recorded_command_is_shown_quoted(text: str, shell: Shell) -> None:
    line = recorded(text)
    assert line.words == tuple(shlex.split(text))
    assert recorded(line.text) == line
    assert shell.calls(line.text) == [line.words]
    assert typed(text) == line


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_what_is_not_the_words_of_one_program_is_no_command(text: object) -> None:
    assert recorded(text) is None
    if isinstance(text, str):
        with pytest.raises(UsageError) as refused:
            typed(text)
        assert refused.value.message.isprintable()
        assert len(refused.value.message) < 400


PARTS = (" ", "'", '"', "\\", ";", "$(", "`", "a", "#", ">x", "=", "-", "é")


@given(st.one_of(st.text(), st.lists(st.sampled_from(PARTS)).map("".join)))
def test_quoting_gives_the_same_words_back(text: str) -> None:
    line = recorded(text)
    if line is not None:
        assert shlex.split(line.text) == shlex.split(text) == list(line.words)
        assert line.text.isprintable()
    assert shlex.split(line_of("profkit triage", text).text)[2:] == [clean(text)]


@pytest.mark.parametrize("words", [(), ("a\nb",), ("a\x1b",)])
def test_a_command_line_holds_words_that_can_be_printed(words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="one word or more"):
        CommandLine(words)


def test_a_file_is_never_an_option_and_profkit_finds_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from profkit.ingest.discover import find_sources

    monkeypatch.chdir(tmp_path)
    for name in ("-rf.json", "a\nb \x1b'$(c).json", "plain.json"):
        Path(name).write_text("{}")
        word = path_word(name)
        assert find_sources(shlex.split(quoted_path(name))) == [word if name.isprintable() else name]
        assert not word.startswith("-")
        assert Path(find_sources([word])[0]).resolve() == Path(name).resolve()
    assert path_word("-") == "-"


def hostile(rows: list, **metadata: object) -> object:
    return trace_of([replace(row, name=row.name + BAD_NAME) for row in rows], **metadata)


JOBS = (drawn.healthy, drawn.starved, drawn.launch_bound, drawn.synchronising, drawn.exposed_communication)


@pytest.mark.parametrize("text", [*WHOLE[:2], *BROKEN[:8], *BROKEN[-4:]], ids=range(14))
def test_every_next_command_of_a_hostile_trace_is_one_program_and_its_words(text: object, shell: Shell) -> None:
    for job in JOBS:
        for extra in ({}, {"hip_runtime_version": 60200}, {"profkit_command_mark": own_mark(text)}):
            analysed = analyse(hostile(job().rows, profkit_command=text, **extra))
            findings = analysed.rank.findings
            tools = [analysed.verdict.next_tool, *(tool for finding in findings for tool in finding.next_tools)]
            tools += [analysed.case.hottest_kernel_tool] if analysed.case.hottest_kernel_tool else []
            assert_inert(shell, tools)
            is_own = "profkit_command_mark" in extra
            shown = (recorded(text) if is_own else None) or DEFAULT_COMMAND
            commands = [tool.command for tool in tools if " -- " in tool.command]
            assert commands
            assert all(command.endswith(shown.text) for command in commands)


@pytest.mark.parametrize(
    "flag", ["--api-key={}", "--token {}", "++logger.wandb.api_key={}", "-H 'Authorization: Bearer {}'"]
)
def test_a_secret_that_an_older_capture_marked_as_its_users_own_is_not_repeated(flag: str) -> None:
    secret = "hZCcCDhB" + "rrUhaoalHDWFLUMUKplk"
    text = f"python train.py {flag.format(secret)} --lr 1e-3"
    analysed = analyse(hostile(JOBS[0]().rows, profkit_command=text, profkit_command_mark=own_mark(text)))
    finding_tools = [tool for finding in analysed.rank.findings for tool in finding.next_tools]
    commands = [tool.command for tool in (analysed.verdict.next_tool, *finding_tools) if " -- " in tool.command]
    assert commands
    for command in commands:
        assert command.endswith("--lr 1e-3")
        assert secret not in command
        assert REDACTED in command


def test_every_way_to_look_again_keeps_names_as_words(shell: Shell) -> None:
    plain = Scope(
        window_ns=1,
        n_steps=1,
        has_steps=True,
        is_cpu=False,
        command=line_of("python", BAD_NAME),
        traits=kineto.traits(),
    )
    both = (kineto.traits(), nsys.traits())
    scopes = [replace(plain, vendor=vendor, traits=traits) for vendor in Vendor for traits in both]
    tools = [steps_alone(BAD_NAME, 7), steps_alone("-rf", 7)]
    for scope in scopes:
        tools += [
            recapture(scope, "p", "l", flags="--memory"),
            operators(scope, "p", "l"),
            system_timeline(scope, "p", "l"),
            kernel_profile(scope, BAD_NAME, "p", "l", launch=3),
            kernel_profile(scope, "$(>PWN)", "p", "l"),
            kernel_profile(scope, "-x;>PWN", "p", "l"),
        ]
    assert_inert(shell, tools)


@pytest.mark.parametrize("phase", ["data", "host", "device", "work"])
def test_files_of_ranks_with_hostile_names(phase: str, tmp_path: Path, shell: Shell) -> None:
    job = disk_jobs.Job(slow={2: 8 * scripted.MS}, phase=phase)
    folder = scripted.write(scripted.run(disk_jobs.programs(job)), tmp_path / "-r ';>PWN;'$(>PWN)\n")
    for place, path in enumerate(sorted(folder.glob("*rank*"))):
        path.rename(path.with_name(f"-{BAD_NAME.replace('/', '')}.rank{place}{''.join(path.suffixes[-2:])}"))
    report = profkit.triage([str(folder)], command=None)
    assert len(report.ranks) == 4
    tools = tools_of(report)
    assert_inert(shell, tools)
    assert phase != "work" or any(tool.name == "profkit compare" for tool in tools)


def test_profiles_with_hostile_names_beside_a_trace(tmp_path: Path, shell: Shell) -> None:
    from profkit.crosscheck.run import Reading, handed_over
    from profkit.crosscheck.sources import sources_of
    from profkit.ranks.reduce.options import Options

    trace = tmp_path / "-t ';>PWN;'.json.gz"
    rows = Job(metadata={}).rows()
    trace.write_bytes(gzip.compress(to_json(rows, metadata={"profkit_command": BROKEN[0]})))
    profile = ncu_csv(tmp_path / "k ';>PWN;'$(>PWN).csv", Profile("Kernel2<c>(P)", 50, 90, us=120, grid=(128, 4, 1)))
    given = sources_of([str(trace), str(profile)])
    report = handed_over(profkit.triage(list(given.first)), given, Reading(options=Options(), jobs=1, progress=None))
    assert_inert(shell, tools_of(report))


def test_the_users_own_command_must_be_one_program_too() -> None:
    trace = drawn.starved().trace()
    assert analyse(trace, command="python my.py 'a b'").verdict.next_tool.command.endswith(" -- python my.py 'a b'")
    with pytest.raises(UsageError):
        analyse(trace, command="cd x && python my.py")
    with pytest.raises(UsageError):
        profkit.triage(["a.json", "b.json"], command="cd x && python my.py")  # before any is read


MODULES = sorted((ROOT / "profkit").rglob("*.py"))
SPLITS = {"profkit/shell.py", "profkit/cli/bench.py"}  # bench: what its user typed as one word


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_text_becomes_words_in_one_place(path: Path) -> None:
    """Nothing but `profkit.shell` splits text into words or makes a command line, and no next tool takes text."""
    name = path.relative_to(ROOT).as_posix()
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    said = [(ast.unparse(call.func), call) for call in calls]
    assert name in SPLITS or not [call for func, call in said if func == "shlex.split"]
    assert name == "profkit/shell.py" or not [call for func, call in said if func.split(".")[-1] == "CommandLine"]
    assert not [call for func, call in said if func in {"os.system", "os.popen"}]
    assert not [call for _, call in said if any(word.arg == "shell" for word in call.keywords)]
    for func, call in said:
        if func.split(".")[-1] == "NextTool":
            (line,) = [ast.unparse(word.value) for word in call.keywords if word.arg == "line"]
            assert line == "line" or line.partition("(")[0].split(".")[-1] in {"line_of", "under", "given"}, line


@pytest.mark.parametrize(
    ("told", "world_size", "line"),
    [
        ("torchrun --nproc-per-node 4 -m workloads.ddp", 8, "torchrun --nproc-per-node 4 train.py"),
        ("/opt/bin/torchrun --nnodes=1 --nproc_per_node=2 x.py", None, "torchrun --nproc-per-node 2 train.py"),
        ("python -m torch.distributed.run x.py", 8, "torchrun --nproc-per-node 8 train.py"),
        ("torchrun --nproc-per-node $(reboot) x.py", 2, "torchrun --nproc-per-node 2 train.py"),
        ("python train.py --name torchrun", 2, "python train.py"),
        (None, 2, "torchrun --nproc-per-node 2 train.py"),
        (None, 64, "torchrun --nproc-per-node auto train.py"),
        (None, 1, "python train.py"),
        (None, None, "python train.py"),
    ],
)
def test_what_stands_for_an_unknown_command_starts_the_ranks_where_a_launcher_did(told, world_size, line):
    assert stand_in(told, world_size).text == line


def test_the_processes_that_a_launcher_starts_are_sampled_too():
    assert "--subprocesses" in py_spy_main(stand_in("torchrun x.py", 2)).command
    assert "--subprocesses" not in py_spy_main(DEFAULT_COMMAND).command
