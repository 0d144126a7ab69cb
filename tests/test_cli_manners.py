"""How the commands behave alike: one meaning for a flag, defaults shown one way, nothing wider than the terminal."""

import ast
import itertools
import json
import re
import sys
from collections import defaultdict
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from profkit.cli import COMMANDS, group
from profkit.cli.capture import Captured
from profkit.cli.compare import compared
from profkit.cli.run import _places
from profkit.compare.paths import scale_paths
from profkit.errors import ProfkitError, UsageError
from profkit.render import renderer_for
from profkit.render.schema import SCHEMAS
from profkit.render.words.explain import known_names
from tests.conftest import IN_FULL, ROOT

TRACES = sorted(path for path in (ROOT / "traces").iterdir() if path.suffix != ".toml")
FOLDERS = [path for path in TRACES if path.is_dir()]
DATA = ROOT / "traces" / "data_cpu.pt.trace.json.gz"


def options(name: str) -> list[click.Option]:
    command = group.get_command(click.Context(group), name)
    return [one for one in command.get_params(click.Context(command)) if isinstance(one, click.Option)]


ALL = [(name, option) for name in COMMANDS for option in options(name)]


def record(name: str, option: click.Option) -> tuple[str, str]:
    return option.get_help_record(click.Context(group.get_command(click.Context(group), name)))


def run(*words: object, exits: int = 0) -> str:
    done = CliRunner().invoke(group, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, (SystemExit, ProfkitError)), done.exception
    code = done.exception.exit_code if isinstance(done.exception, ProfkitError) else done.exit_code
    assert code == exits, done.output
    return done.output + (f"{done.exception}" if isinstance(done.exception, ProfkitError) else "")


def stem(text: str) -> str:
    """What a flag's help begins with in every command: its first clause."""
    return re.split(r"[.,:;(]", text, maxsplit=1)[0]


def test_a_flag_means_the_same_in_every_command():
    said = defaultdict(set)
    for name, option in ALL:
        shown, text = record(name, option)
        metavar = shown.rpartition(option.opts[-1])[2].strip()
        of_path = (option.type.file_okay,) if option.name == "cache" else ()
        for flag in (*option.opts, *option.secondary_opts):
            said[flag].add((type(option.type).__name__, metavar, stem(text), option.is_flag, of_path))
    assert {flag: meanings for flag, meanings in said.items() if len(meanings) > 1} == {}


FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
LINE = re.compile(rf"profkit ({'|'.join(COMMANDS)})\b((?:(?! -- |[`;|)]|[.,] |profkit )[^\n])*)")
"""A command in a text, up to the command that it runs, or to the sentence's end."""


def flags(name: str) -> set[str]:
    return set(FLAG.findall(run(name, "--help")))


def texts(path: Path) -> list[ast.Constant]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_flags_that_a_text_gives_a_command_are_shown_by_its_help():
    shown = {name: flags(name) for name in COMMANDS}
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "analyses").glob("*/README.md")]
    said = [(path.name, path.read_text(encoding="utf-8")) for path in documents]
    said += [(path.name, text.value) for path in (ROOT / "profkit").rglob("*.py") for text in texts(path)]
    lines = [(where, line) for where, text in said for line in LINE.finditer(text)]
    assert len(lines) > 100
    assert [(where, line[0]) for where, line in lines if not set(FLAG.findall(line[2])) <= shown[line[1]]] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_hint_of_a_command_names_its_flags(name: str):
    module = group.get_command(click.Context(group), name).callback.__module__
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    hints = [node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "hint"]
    own = " ".join(LINE.sub("", ast.unparse(hint.value)) for hint in hints)
    assert set(FLAG.findall(own)) <= flags(name)


def test_a_short_flag_stands_for_one_long_one():
    long_of = defaultdict(set)
    for _, option in ALL:
        for short in (flag for flag in option.opts if not flag.startswith("--")):
            long_of[short].update(flag for flag in option.opts if flag.startswith("--"))
    assert {short: names for short, names in long_of.items() if len(names) != 1} == {}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_flags_that_all_have(name):
    flags = {flag for option in options(name) for flag in (*option.opts, *option.secondary_opts)}
    assert {"--help", "-v", "--verbose", "--color", "--no-color"} <= flags


@pytest.mark.parametrize(("name", "option"), ALL, ids=lambda value: getattr(value, "name", value))
def test_help_says_what_a_flag_does_and_its_default_in_one_way(name, option):
    shown, text = record(name, option)
    assert text[:1].isupper(), "a flag without help"
    assert text.partition("  [")[0].endswith("."), text
    assert "RANGE" not in shown
    assert "INTEGER" not in shown
    assert not re.search(r"\((?:default|\d+)[^)]*\)\.", text), "a default is in brackets behind the help"
    assert not re.search(r"\[default: \(", text)
    has_default = option.default not in (None, False, "") and not str(option.default).startswith("Sentinel")
    if has_default and not option.is_flag:
        assert f"[default: {option.default}" in text or isinstance(option.show_default, str)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_keeps_to_the_terminal(name, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    text = run(*([name] if name else []), "--help")
    if width >= 80:
        assert [line for line in text.splitlines() if len(line) > min(width, 100)] == []
        monkeypatch.setenv("COLUMNS", "2000")
        whole = set(run(*([name] if name else []), "--help").replace("]", " ").split())
        assert set(text.replace("]", " ").split()) - whole == set(), "a word is broken"


@pytest.mark.parametrize("width", [40, 60, 80])
def test_explanations_keep_to_the_terminal(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    for name in ("", *known_names()):
        text = run("explain", *([name] if name else []))
        lines = [line for line in text.splitlines() if width == 80 and len(line) > width]
        code = [line for line in lines if line.startswith("      ") or len(line.split()) == 1]
        assert lines == code


@pytest.mark.parametrize("words", [["traces"], ["traces/data_cpu.pt.trace.json.gz", "--stats"]])
def test_what_lies_in_a_file_or_a_folder_keeps_to_the_terminal(words, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "60")
    assert run("info", *words)
    monkeypatch.setenv("COLUMNS", "80")
    assert [line for line in run("info", *words).splitlines() if len(line) > 80] == []
    monkeypatch.delenv("COLUMNS")  # a pipe: names are whole
    assert "…" not in run("info", *words)


def documents():
    from profkit.api import triage

    for path in TRACES if IN_FULL else [*(path for path in TRACES if path.is_file()), *FOLDERS[::4]]:
        yield f"triage {path.name}", "triage", triage([path])
    for one, other in itertools.pairwise(FOLDERS if IN_FULL else FOLDERS[:2]):
        found = compared([str(one)], [str(other)], margin=0.02, metric=None, lenient=False)
        yield f"compare {one.name} {other.name}", "compare", found
    paths = tuple(str(ROOT / "traces" / name) for name in ("ddp_strong_ws1", "ddp_strong_ws2"))
    yield "scaling", "scaling", scale_paths(paths, held=None, metric=None, capacity_bytes=None, lenient=False)


@pytest.mark.sampled
def test_reports_of_the_committed_traces_break_no_word_at_80_columns_and_do_not_fail_at_60():
    """A line is wider only where it is a command, which is pasted; names in tables are cut with an ellipsis."""
    wrong = []
    for name, kind, document in documents():
        render = renderer_for(kind, "terminal")
        wide = {
            word for more in (True, False) for word in render(document, width=2000, color=False, verbose=more).split()
        }
        for verbose in (False, True):
            assert render(document, width=60, color=False, verbose=verbose)
            text = render(document, width=80, color=False, verbose=verbose)
            wrong += [(name, line) for line in text.splitlines() if len(line) > 80 and " -- " not in line]
            words = {word for word in text.split() if "…" not in word} - wide
            known = {"found", "no", "room", "for:", "%)"}  # of tables that leave columns out
            wrong += [(name, word) for word in words - known if re.search(r"[/\w]", word)]
    assert wrong == []


@pytest.mark.parametrize(
    ("given", "name"),
    [("md", "markdown"), ("MD", "markdown"), ("text", "terminal"), ("txt", "terminal"), ("term", "terminal")],
)
def test_formats_have_short_names(given, name):
    assert run("triage", DATA, "-f", given) == run("triage", DATA, "-f", name)


@pytest.mark.parametrize("name", ["info", "doctor"])
def test_descriptions_take_the_short_names_too(name):
    words = [name, *([DATA] if name == "info" else [])]
    done = CliRunner().invoke(group, [*map(str, words), "-f", "txt"])
    assert not isinstance(done.exception, click.UsageError)
    assert "did you mean json?" in run(*words, "-f", "jsn", exits=2)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            ["capture", "--baseline", 3, "--warmup", 2, "--inject", "env"],
            ["--unprofiled-steps", 3, "--warmup-steps", 2],
        ),
        (["triage", DATA, "-f", "json", "--steps", "2:5"], ["--step-range", "2:5"]),
        (["triage", DATA, "-f", "json", "--strict"], ["--fail-fast"]),
    ],
)
def test_old_spellings_still_work_and_are_not_shown(old, new, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = old[0]
    spelt = [word for word in old if str(word).startswith("--") and word != "--inject"]
    kept = [word for word in old[1:] if word not in spelt and word not in (3, 2, "2:5")]
    first, second = (re.sub(r"[0-9a-f]{32}", "ID", run(name, *words)) for words in (old[1:], [*new, *kept]))
    assert first == second
    assert not set(spelt) & set(run(name, "--help").split())


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("data-bound", "input.starved"),
        ("DATA-BOUND", "input.starved"),
        ("healthy", "kernel-bound: verdict"),
        ("inconclusive", "cannot tell"),
        ("steps.few", "check of the capture"),
        ("input.starved", "data-bound: The device waits"),
    ],
)
def test_findings_verdicts_and_checks_are_explained(asked, says):
    assert says in " ".join(run("explain", asked).split())


def test_colour_is_forced_or_forbidden_for_what_is_no_report_too(monkeypatch):
    assert "\x1b[1m" in run("explain", "data-bound", "--color")
    assert "\x1b" not in run("explain", "data-bound", "--no-color")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("explain", "data-bound")


@pytest.mark.parametrize(
    ("asked", "near"),
    [("data-bond", "data-bound"), ("quality", "capture.quality"), ("bandwith", "comm.bandwidth"), ("few", "steps.few")],
)
def test_near_misses_are_named(asked, near):
    assert f"did you mean {near}?" in run("explain", asked, exits=2)


def test_every_schema_can_be_printed():
    for name in SCHEMAS:
        assert json.loads(run("schema", name))["$schema"]


@pytest.mark.parametrize("words", [["triage", "--fromat", "json"], ["compare", "--baselin", "a"], ["tirage"]])
def test_misspelt_flags_and_commands_are_named_too(words):
    assert "did you mean" in run(*words, exits=2).lower()


@pytest.mark.parametrize(
    ("fmt", "output", "folder", "places"),
    [
        (None, None, None, (None, None)),
        (None, "report.md", None, ("report.md", None)),
        (None, "report.json", "runs", ("report.json", "runs")),
        ("json", "out", None, ("out", None)),
        (None, "out/run1", None, (None, "out/run1")),  # as it was spelt before --folder
        (None, "-", None, ("-", None)),
    ],
)
def test_run_writes_its_report_and_its_traces_where_it_is_told(fmt, output, folder, places):
    given = [None if one is None else Path(one) for one in (output, folder)]
    assert _places(fmt, *given) == tuple(None if one is None else Path(one) for one in places)


def test_run_does_not_take_a_file_for_a_folder(tmp_path):
    with pytest.raises(UsageError, match=r"no format is known for report\.pdf"):
        _places(None, tmp_path / "report.pdf", None)
    (tmp_path / "runs.old").mkdir()
    assert _places(None, tmp_path / "runs.old", None) == (None, tmp_path / "runs.old")


@pytest.mark.torch
def test_run_gives_its_report_in_the_format_asked(tmp_path):
    from tests.calling import profkit

    script = ROOT / "tests" / "capture" / "scripts" / "plain.py"
    done = profkit("run", "-f", "json", "-o", "r.out", "--folder", "kept", "--", sys.executable, script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "r.out").read_text())["verdict"]["source"].startswith(str(tmp_path / "kept"))
    assert (tmp_path / "kept" / "capture.json").exists()


def test_run_says_before_it_runs_that_the_report_cannot_be_written(tmp_path):
    for output in (tmp_path / "none" / "r.json", tmp_path):
        done = CliRunner().invoke(group, ["run", "-f", "json", "-o", str(output), "--", "false"])
        assert isinstance(done.exception, UsageError)


@pytest.mark.parametrize(("is_strict", "said"), [(False, 3), (True, None)])
def test_a_report_that_fails_leaves_the_exit_code_to_the_command(tmp_path, monkeypatch, is_strict, said):
    done = Captured(code=3, folder=tmp_path, has_trace=True, is_lacking=False, is_strict=is_strict)
    monkeypatch.setattr("profkit.cli.run.captured", lambda *_: done)
    told = CliRunner().invoke(group, ["run", "--folder", str(tmp_path / "kept"), "--", "true"], standalone_mode=False)
    assert told.return_value == said
    assert isinstance(told.exception, ProfkitError) is is_strict
