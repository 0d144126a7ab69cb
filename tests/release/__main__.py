"""`make release-check`: builds profkit, installs it as a user does and tries it. ARGS=--sample takes two minutes.

Needs a network (package indexes). A Python that cannot be had is named, and is no failure; fewer than two are one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.release import artifacts, smoke
from tests.release.environments import ROOT, VERSIONS, created, python_of
from tests.release.extras import EXTRAS, HEAVY, TRIALS, trial_of

WORK = ROOT / "out" / "release"


def main() -> int:
    """Print a line for each thing tried; 1 where one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("--sample", action="store_true", help="without heavy extras, the index's page and most formats")
    parser.add_argument(
        "--only", default="", help="what is tried: words of its name, as 'python 3.14' or 'extra parquet'"
    )
    asked = parser.parse_args()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    return Release(is_sample=asked.sample, only=asked.only).checked()


class Release:
    """One run: what is tried, what failed."""

    def __init__(self, *, is_sample: bool, only: str) -> None:
        self.is_sample = is_sample
        self.only = only
        self.n_tried = 0
        self.n_failed = 0

    def checked(self) -> int:
        """Try all; the exit code."""
        dist = artifacts.built(WORK)
        if isinstance(dist, str):
            print(f"FAILED build\n  {dist}")
            return 1
        package = artifacts.tracked()
        self.tries(f"wheel {dist.wheel.name}", lambda: artifacts.wheel_faults(dist.wheel, package))
        self.tries(f"source {dist.source.name}", lambda: artifacts.source_faults(dist.source, package))
        if not self.is_sample:
            self.tries("page of an index (twine check)", lambda: artifacts.page_faults(dist, WORK))
        n_pythons = sum(self.tries_python(version, dist.wheel) for version in VERSIONS)
        if n_pythons < 2 and not self.only:
            self.n_failed += 1
            print(f"FAILED {n_pythons} of the Pythons {', '.join(VERSIONS)} could be had")
        self.tries(
            "oldest packages", lambda: self.in_new("oldest", [dist.wheel, *oldest()], is_native=True, formats=("json",))
        )
        self.tries("without a compiler", lambda: self.without_compiler(dist.source))
        for extra in EXTRAS:
            if not (self.is_sample and extra in HEAVY):
                self.tries(f"extra {extra}", lambda extra=extra: self.alone(extra, dist.wheel))
        print(f"{self.n_tried - self.n_failed} passed, {self.n_failed} failed")
        return int(self.n_failed > 0)

    def tries(self, name: str, check: Callable[[], Iterable[str]]) -> None:
        """Try one thing and print what came of it."""
        if self.only not in name:
            return
        began = time.monotonic()
        faults = list(check())
        self.n_tried += 1
        self.n_failed += bool(faults)
        print(f"{'FAILED' if faults else 'ok':6} {name}, {time.monotonic() - began:.0f} s", flush=True)
        for fault in faults:
            print("  " + fault.strip().replace("\n", "\n  "))

    def tries_python(self, version: str, wheel: Path) -> bool:
        """Try the wheel on a Python, where there is one."""
        name = f"python {version}"
        if self.only not in name:
            return False
        python = python_of(version)
        if isinstance(python, str):
            print(f"-      {name}: {python}")
            return False
        formats = ("json", "html") if self.is_sample else smoke.FORMATS
        self.tries(name, lambda: self.in_new(version, [wheel], is_native=True, formats=formats, python=python))
        return True

    def in_new(
        self,
        name: str,
        wanted: list[object],
        *,
        is_native: bool,
        formats: tuple[str, ...],
        python: Path | None = None,
    ) -> Iterator[str]:
        """What is wrong with profkit in a new environment."""
        env, error = created(WORK / name, python or Path(sys.executable), wanted)
        if error:
            yield error
        else:
            yield from smoke.faults(env, WORK, is_native=is_native, formats=formats)

    def without_compiler(self, source: Path) -> Iterator[str]:
        """Where nothing can be compiled the source package gives a wheel for any machine, and Python reads alone."""
        wheel = artifacts.built_without_compiler(source, WORK)
        if isinstance(wheel, str):
            yield wheel
            return
        yield from artifacts.wheel_faults(wheel, artifacts.tracked())
        if not wheel.name.endswith("-py3-none-any.whl"):
            yield f"{wheel.name} is for one kind of machine"
        yield from self.in_new("plain-installed", [wheel], is_native=False, formats=("json",))

    def alone(self, extra: str, wheel: Path) -> Iterator[str]:
        """One extra alone, in the versions that are tested."""
        pins = ["-c", ROOT / "constraints.txt"]
        env, error = created(WORK / f"extra-{extra}", Path(sys.executable), [*pins, f"{wheel}[{extra}]"])
        if error:
            yield error
            return
        folder = WORK / f"tried-{extra}"
        folder.mkdir()
        if extra not in TRIALS:
            print(f"-      extra {extra} has no trial of its own: profkit is started")
        yield from trial_of(extra)(env, folder)


def oldest() -> list[str]:
    """The lower bounds of what profkit needs, as pins."""
    import tomllib

    needs = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    return [need.replace(">=", "==") for need in needs]


if __name__ == "__main__":
    sys.exit(main())
