"""Finds: folders with the files, the commands and what happened; written by the worker, run again from here."""

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from profkit.errors import RAISE
from tests.fuzz.documents import Case, Secret
from tests.fuzz.oracles import Fault, faults_of
from tests.fuzz.target import LIMIT_CPU_S, Outcome, at_home, limit_memory, run, warm
from tests.ingest.both_ways import unlike

HERE = Path(__file__).parent / "finds"
ABOUT = "find.json"


@dataclass
class Find:
    """One fault, the input that shows it (made small where there was time), and where it came from."""

    fault: Fault
    case: Case
    only: str
    traceback: str = ""
    is_small: bool = False

    @property
    def name(self) -> str:
        digest = hashlib.sha256(self.fault.signature.encode()).hexdigest()[:10]
        return f"{self.case.kind}-{self.fault.oracle}-{digest}"


def write(find: Find, folder: Path) -> Path:
    """Write a find; gives its folder."""
    place = folder / find.name
    files = place / "files"
    files.mkdir(parents=True, exist_ok=True)
    find.case.write(files)
    (place / ABOUT).write_text(json.dumps(about(find), indent=1) + "\n")
    words = [f"cd {shlex.quote(str(files))}", *(f"profkit {shlex.join(args)}" for args in find.case.commands)]
    asked = "\n".join([f"python -m tests.fuzz --only {find.only}", *words])
    told = f"# {find.fault.signature}", find.fault.said, asked, f"done: {', '.join(find.case.done)}", find.traceback
    (place / "README.txt").write_text("\n\n".join(told).encode("utf-8", "backslashreplace").decode())
    return place


def about(find: Find) -> dict[str, Any]:
    """A find as JSON."""
    return {
        "signature": find.fault.signature,
        "oracle": find.fault.oracle,
        "key": find.fault.key,
        "said": find.fault.said,
        "only": find.only,
        "kind": find.case.kind,
        "is_small": find.is_small,
        "commands": find.case.commands,
        "secrets": [[one.marker, one.form] for one in find.case.secrets],
        "done": find.case.done,
    }


def replay(place: Path, folder: Path) -> list[tuple[Outcome, list[Fault]]]:
    """Run a find's commands again on a copy of its files in an empty folder; gives each outcome and its faults."""
    told = json.loads((place / ABOUT).read_text())
    at_home(folder.with_name("home"))
    shutil.copytree(place / "files", folder, dirs_exist_ok=True, symlinks=True)
    names = {path.relative_to(folder).as_posix(): None for path in folder.rglob("*") if path.is_file()}
    case = Case(
        kind=told["kind"],
        files=names,  # type: ignore[arg-type] - only their names are asked for
        commands=told["commands"],
        secrets=[Secret(marker=marker, form=form) for marker, form in told["secrets"]],
        done=told["done"],
    )
    with contextlib.chdir(folder):
        return outcomes_of(case, folder)


def outcomes_of(case: Case, folder: Path, *, limit_cpu_s: float = LIMIT_CPU_S) -> list[tuple[Outcome, list[Fault]]]:
    """Each command of a case, in the folder of its files, with its faults."""
    found: list[tuple[Outcome, list[Fault]]] = []
    for args in case.commands:
        outcome = run(args, limit_cpu_s=limit_cpu_s)
        outcome.others = [other for other, _ in found]
        if case.kind == "native":
            both_ways = (unlike(folder / name, lenient="--lenient" in args) for name in case.files)
            outcome.unlike = "; ".join(filter(None, both_ways))
        found.append((outcome, faults_of(outcome, case, folder)))
    return found


def shown(outcome: Outcome, faults: list[Fault]) -> str:
    """What a command did and what of it does not hold, for a terminal."""
    printed = re.sub(r"[^\n -~]", "?", outcome.out + outcome.err)[-4000:]
    head = f"\nprofkit {shlex.join(outcome.args)}: exit code {outcome.code}, {outcome.wall_s:.3f} s\n{printed}\n"
    told = (f"FAULT {fault.signature}\n      {fault.said[:800]!r}\n" for fault in faults)
    return "".join((head, outcome.traceback, *told))


def report(place: Path) -> list[str]:
    """Run a find again and print what it does now; gives the signatures of its faults."""
    signatures = []
    warm()
    with TemporaryDirectory(prefix="profkit-fuzz-") as folder:
        home = Path(folder) / "home"
        home.mkdir()
        os.environ.update(HOME=str(home), TMPDIR=str(home))
        os.environ[RAISE] = "1"  # as when it was found: what a user is spared is a find
        for outcome, faults in replay(place, Path(folder) / "in"):
            sys.stderr.write(shown(outcome, faults))
            signatures += [fault.signature for fault in faults]
    return signatures


def keep(place: Path) -> Path:
    """Copy a find to those that test_finds.py replays, without what only its finder's machine knows."""
    told = json.loads((place / ABOUT).read_text())
    kept = {key: told[key] for key in ("signature", "only", "kind", "commands", "secrets", "done")}
    shutil.copytree(place / "files", HERE / place.name / "files", dirs_exist_ok=True, symlinks=True)
    (HERE / place.name / ABOUT).write_text(json.dumps(kept, indent=1) + "\n")
    return HERE / place.name


def main() -> int:
    """Run the finds in the folders given; on standard output what they are now, as JSON. `--keep`: copy them first."""
    if sys.argv[1:2] == ["--keep"]:
        sys.argv[1:] = [str(keep(Path(place))) for place in sys.argv[2:]]
    warm()
    limit_memory()
    found = {place: report(Path(place)) for place in sys.argv[1:]}
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
