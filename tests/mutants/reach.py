"""Which tests reach which function of the rule code: recorded once per test file, kept beside the results."""

import ast
import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests.conftest import ROOT
from tests.mutants import trial
from tests.mutants.mutations import Mutant, module_of, rule_files

UNFIT = ("capture", "fuzz", "mutants", "workloads", "ingest", "analyses", "ranks/test_labs.py", "ranks/test_workers.py")
"""Tests of other code, and those that start processes: the processes load the code as it stands."""
_CPU_S = 1800


class Seen(NamedTuple):
    """What one test takes, and how many functions of the rule code it reaches."""

    seconds: float
    n_reached: int


class Reach:
    """Per test its time and the functions that it calls, as `path::Class.method`."""

    def __init__(self, folder: Path, tests: Iterable[str]) -> None:
        self._notes = folder / "reach.jsonl"
        self._tests = sorted({test for place in tests for test in _test_files(ROOT / place)})
        known = (
            [json.loads(line) for line in self._notes.read_text("utf-8").splitlines()] if self._notes.exists() else []
        )
        prints = {file: _print_of(file) for file in self._tests}
        self._known: dict[str, list[dict[str, Any]]] = {}
        for note in known:
            file = note["file"]
            if prints.get(file) == note["print"]:
                self._known[file] = note["tests"]

    def missing(self) -> list[str]:
        """Test files that were not recorded as they are now."""
        return [file for file in self._tests if file not in self._known]

    def record(self) -> None:
        """Run the missing files, each in its own process, with modules that note the calls."""
        texts = noting()
        for file in self.missing():
            tests, failed = trial.in_process(lambda file=file: _recorded(file, texts), cpu_s=_CPU_S) or ([], "pytest")
            if failed:
                sys.stdout.write(f"mutants: red without any mutant, so left out: {failed}\n")
            self._known[file] = tests
            with self._notes.open("a", encoding="utf-8") as out:
                out.write(json.dumps({"file": file, "print": _print_of(file), "tests": tests}) + "\n")

    def tests_of(self, mutant: Mutant) -> dict[str, Seen]:
        """The tests that may see a mutant; what is no function's is seen by all that reach the module or its users."""
        keys = {f"{mutant.path}::{mutant.scope}"} if mutant.scope else set(_users(mutant.path))
        return {
            note["test"]: Seen(note["s"], len(note["calls"]))
            for tests in self._known.values()
            for note in tests
            if any(call in keys or call.split("::")[0] in keys for call in note["calls"])
        }


def _recorded(file: str, texts: dict[str, tuple[str, str]]) -> tuple[list[dict[str, Any]], str]:
    notes: list[dict[str, Any]] = []
    failed, _ = trial.run(texts, _All(), [trial.Reached(notes.append)], files=[file])
    return notes, failed


class _All(dict[str, float]):
    def __contains__(self, test: object) -> bool:
        return True

    def __missing__(self, test: str) -> float:
        return 0.0


def _test_files(place: Path) -> list[str]:
    files = [place] if place.is_file() else sorted(place.rglob("test_*.py"))
    names = [file.relative_to(ROOT).as_posix() for file in files]
    return [name for name in names if not name.removeprefix("tests/").startswith(UNFIT)]


def _print_of(file: str) -> str:
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:16]


def noting() -> dict[str, tuple[str, str]]:
    """(path, text) of each rule module, its functions noting that they are called."""
    texts = {}
    for path in rule_files():
        tree = ast.parse((ROOT / path).read_bytes())
        _Noting(path).visit(tree)
        texts[module_of(path)] = (str(ROOT / path), ast.unparse(ast.fix_missing_locations(tree)))
    return texts


class _Noting(ast.NodeVisitor):
    def __init__(self, path: str) -> None:
        self._path = path
        self._scope: list[str] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.append(node.name)
        self.generic_visit(node)
        self._scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._scope.append(node.name)
        call = ast.parse(f"profkit_reached({f'{self._path}::' + '.'.join(self._scope)!r})").body
        node.body[:] = [*node.body[:1], *call, *node.body[1:]] if ast.get_docstring(node) else [*call, *node.body]
        self.generic_visit(node)
        self._scope.pop()


def _users(path: str) -> list[str]:
    """A rule module and those that import from it."""
    name = module_of(path)
    texts = {other: (ROOT / other).read_text("utf-8") for other in rule_files()}
    return [path, *(other for other, text in texts.items() if f"from {name} import" in text)]
