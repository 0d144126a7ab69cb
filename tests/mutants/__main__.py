"""`python -m tests.mutants`: draw mutants of the rule code, try each, print what no test noticed; exit 1 below 90 %."""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.mutants import trial
from tests.mutants.mutations import Mutant, draw, module_of
from tests.mutants.reach import Reach, Seen

_ENOUGH = 0.9
_FIRST, _FIRST_S = 40, 2.0
"""So many tests, of so many seconds, are run before all others that reach a mutant: most are killed there."""


def main(arguments: list[str] | None = None) -> int:
    """Try the drawn mutants; gives the exit code."""
    options = _parsed(arguments)
    mutants = draw(options.seed, options.count)
    if options.only:
        mutants = [
            mutant for mutant in mutants if any(word in (mutant.id, mutant.path) for word in options.only.split(","))
        ]
    if options.list:
        sys.stdout.write("".join(f"{_shown(mutant)}\n" for mutant in mutants))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    results = _Results(options.out / f"{options.seed}.jsonl", again=options.again)
    trial.preload()
    reach = Reach(options.out.absolute(), options.tests)
    if missing := reach.missing():
        _say(f"mutants: records which functions {len(missing)} test files reach\n")
        reach.record()
    for number, mutant in enumerate(mutants, 1):
        killed = results.of(mutant)
        if killed is None:
            killed = results.add(mutant, _killer(mutant, reach.tests_of(mutant), options.most_s))
        _say(f"{number:>4} {mutant.path}:{mutant.line} {mutant.kind}: {killed or 'SURVIVED'}\n")
    survivors = [mutant for mutant in mutants if not results.of(mutant)]
    _say("".join(f"\n{_shown(mutant)}\n" for mutant in survivors))
    killed = len(mutants) - len(survivors)
    _say(f"\n{killed} of {len(mutants)} mutants killed; seed {options.seed}\n")
    return int(killed < _ENOUGH * len(mutants))


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("tests", nargs="*", default=["tests"], help="test files and folders (tests)")
    parser.add_argument("--seed", default="20261122", help="any text: another draw")
    parser.add_argument("--count", type=int, default=60, help="how many are drawn")
    parser.add_argument("--only", metavar="ID,PATH", help="of these the ones with such an id or path")
    parser.add_argument("--again", action="store_true", help="try those that survived earlier once more")
    parser.add_argument("--most-s", type=float, default=300.0, help="seconds of tests that a mutant is tried against")
    parser.add_argument("--list", action="store_true", help="print the mutants, try none")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "mutants", help="where results are kept")
    return parser.parse_args(arguments)


def _killer(mutant: Mutant, tests: dict[str, Seen], most_s: float) -> str:
    """The test that fails with a mutant, "" for none; those that reach little else than its function come first."""
    texts = {module_of(mutant.path): (str(ROOT / mutant.path), mutant.source())}
    pieces: list[dict[str, float]] = [{}, {}]
    total_s = 0.0
    for test, seen in sorted(tests.items(), key=lambda item: item[1].seconds * item[1].n_reached):
        total_s += seen.seconds
        if total_s > most_s and pieces[0]:
            break
        pieces[total_s > _FIRST_S or len(pieces[0]) >= _FIRST][test] = seen.seconds
    for wanted in filter(None, pieces):
        limit_s = 20 + 5 * sum(wanted.values())
        result = trial.in_process(lambda wanted=wanted: trial.run(texts, wanted), cpu_s=limit_s)
        if result is None:
            return "took too long, or ended the process"
        if result[0]:
            return str(result[0])
    return ""


class _Results:
    """What was tried, a line of JSON each: a run that was stopped goes on where it was."""

    def __init__(self, path: Path, *, again: bool) -> None:
        self._path = path
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        notes: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self._killed = {_key(note["id"], note["file"]): note["killed"] for note in notes if note["killed"] or not again}

    def of(self, mutant: Mutant) -> str | None:
        """The killer, "" for none, None where it was not tried with the file as it is."""
        return self._killed.get(_key(mutant.id, _print_of(mutant)))

    def add(self, mutant: Mutant, killed: str) -> str:
        note = {"id": mutant.id, "file": _print_of(mutant), "killed": killed, "path": mutant.path, "line": mutant.line}
        with self._path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(note) + "\n")
        self._killed[_key(mutant.id, note["file"])] = killed
        return killed


def _key(identity: str, file: str) -> str:
    return f"{identity} {file}"


def _print_of(mutant: Mutant) -> str:
    return hashlib.sha256((ROOT / mutant.path).read_bytes()).hexdigest()[:16]


def _shown(mutant: Mutant) -> str:
    return f"{mutant.id} {mutant.path}:{mutant.line} {mutant.scope}\n{mutant.diff()}"


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
