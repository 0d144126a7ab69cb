"""The recipes of docs/architecture.md, followed on a copy of profkit: what they do not name need not be touched."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from tests.conftest import ROOT

RECIPES = Path(__file__).resolve().parent / "recipes"
TRACE = str(ROOT / "traces" / "data_cpu.pt.trace.json.gz")
STEPS = "".join(
    f"spans ProfilerStep#{n} {n}000 1000\nspans data_loader {n}000 700\nops aten::mm {n}700 290\n" for n in range(5)
)

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of profkit with its import contracts."""
    shutil.copytree(ROOT / "profkit", tmp_path / "profkit", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.fixture
def run(house: Path) -> Command:
    def command(*words: str, program: tuple[str, ...] = ("-m", "profkit")) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, *program, *words]
        env = {**os.environ, "PYTHONPATH": str(house), "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}
        return subprocess.run(call, capture_output=True, text=True, check=False, cwd=house, env=env)

    return command


def keeps_contracts(run: Command) -> bool:
    linted = run("--no-cache", program=("-c", "from importlinter.cli import lint_imports_command as run; run()"))
    return linted.returncode == 0


def test_a_source_is_one_folder_and_one_line(house: Path, run: Command) -> None:
    shutil.copytree(RECIPES / "toy", house / "profkit" / "ingest" / "toy")
    registry = house / "profkit" / "ingest" / "sources.py"
    known = registry.read_text(encoding="utf-8")
    imported = known.replace("SOURCES: Final", "from profkit.ingest.toy.source import TOY\n\nSOURCES: Final", 1)
    registry.write_text(imported.replace("    NSYS,\n", "    NSYS,\n    TOY,\n", 1), encoding="utf-8")

    folder = house / "run"
    folder.mkdir()
    (folder / "rank0.toy").write_text("toy 1\n" + STEPS)
    done = run("triage", "run", "-f", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["verdict"]["bottleneck"] == "data-bound"
    (rank,) = report["ranks"]
    assert (rank["format"], rank["window"]["step_source"], rank["window"]["n_steps"]) == ("toy", "step", 5)
    assert sum(rank["devices"][0]["budget_ns"].values()) == 5_000_000
    jsonschema.Draft202012Validator(json.loads(run("schema", "triage").stdout)).validate(report)

    assert json.loads(run("info", "run/rank0.toy", "-f", "json").stdout)["format"] == "toy"
    (folder / "rank0.toy").write_text("toy 1\nops x one two\n")
    refused = run("triage", "run")
    assert (refused.returncode, "a row is no table" in refused.stderr) == (3, True)
    assert keeps_contracts(run)


def test_a_format_is_one_folder(house: Path, run: Command) -> None:
    shutil.copytree(RECIPES / "plain", house / "profkit" / "render" / "plain")

    done = run("triage", TRACE, "-f", "plain")
    assert (done.returncode, done.stdout.partition(":")[0]) == (0, "data-bound")
    assert run("triage", TRACE, "-o", "out.line").returncode == 0
    assert (house / "out.line").read_text() == done.stdout
    assert "plain" in run("triage", "--help").stdout
    assert "plain" not in run("compare", "--help").stdout
    refused = run("compare", TRACE, TRACE, "-f", "plain")
    known = "'plain' is not one of terminal, agent, html, json, markdown"
    assert (refused.returncode, known in refused.stderr) == (2, True)
    assert keeps_contracts(run)
