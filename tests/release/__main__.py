"""`make release-check`: builds profkit, installs it as a user does and tries it. ARGS=--sample takes two minutes.

Needs a network (package indexes). A Python that cannot be had is named and is no failure; in CI fewer than two are one.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from tests.release import artifacts, smoke
from tests.release.action import Job
from tests.release.environments import EXTRAS, PROJECT, ROOT, VERSIONS, created, python_of
from tests.release.extras import HEAVY, TRIALS

WORK = ROOT / "out" / "release"


def main() -> int:
    """Print a line for each thing tried; 1 where one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument(
        "--sample", action="store_true", help="the first and the last Python, light extras, two formats"
    )
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
        self.tries_pythons(dist.wheel)
        self.tries(
            "oldest packages",
            lambda: self.in_new("oldest", [dist.wheel, *oldest()], is_native=artifacts.is_native(dist.wheel)),
        )
        self.tries("without a compiler", lambda: self.without_compiler(dist.source))
        for extra in sorted(EXTRAS):
            if not (self.is_sample and extra in HEAVY):
                pins = ["-c", ROOT / "constraints.txt"]
                self.tries(f"extra {extra}", partial(self.alone, extra, dist.wheel, pins))
            if not (self.is_sample or extra in HEAVY):
                self.tries(f"oldest {extra}", partial(self.alone, extra, dist.wheel, oldest(extra)))
        if not self.is_sample:
            self.tries("action", self.action)
        print(f"{self.n_tried - self.n_failed} passed, {self.n_failed} failed")
        if not self.n_failed:  # torch alone has 700 MB
            for folder in WORK.iterdir():
                if folder.name != "dist":
                    shutil.rmtree(folder)
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

    def tries_pythons(self, wheel: Path) -> None:
        """Try the wheel on each Python that is to be had, of a sample on the first and the last."""
        asked = [version for version in VERSIONS if self.only in f"python {version}"]
        found = {version: python_of(version) for version in asked}
        for version, why in found.items():
            if isinstance(why, str):
                print(f"-      python {version}: {why}")
        pythons = {version: python for version, python in found.items() if isinstance(python, Path)}
        if self.is_sample:
            pythons = {version: pythons[version] for version in [*pythons][:1] + [*pythons][1:][-1:]}
        formats = ("json", "html") if self.is_sample else smoke.FORMATS
        for version, python in pythons.items():
            self.tries(f"python {version}", partial(self.on, version, python, wheel, formats))
        if len(pythons) < min(2, len(asked)) and os.environ.get("CI"):
            self.n_failed += 1
            print("FAILED CI has fewer than two Pythons")

    def on(self, version: str, python: Path, wheel: Path, formats: tuple[str, ...]) -> Iterator[str]:
        """What is wrong with a plain install on a Python."""
        env, error = created(WORK / version, python, [wheel])
        if error:
            yield error
            return
        yield from smoke.faults(env, WORK, is_native=artifacts.is_native(wheel), formats=formats)
        yield from smoke.faults_of_a_plain_install(env, WORK)

    def in_new(self, name: str, wanted: list[object], *, is_native: bool) -> Iterator[str]:
        """What is wrong with what is installed so on the Python that runs this."""
        env, error = created(WORK / name, Path(sys.executable), wanted)
        if error:
            yield error
        else:
            yield from smoke.faults(env, WORK, is_native=is_native, formats=("json",))

    def without_compiler(self, source: Path) -> Iterator[str]:
        """Where nothing can be compiled the source package gives a wheel for any machine, and Python reads alone."""
        wheel = artifacts.built_without_compiler(source, WORK)
        if isinstance(wheel, str):
            yield wheel
            return
        yield from artifacts.wheel_faults(wheel, artifacts.tracked())
        if artifacts.is_native(wheel):
            yield f"{wheel.name} is for one kind of machine"
        yield from self.in_new("plain-installed", [wheel], is_native=False)

    def alone(self, extra: str, wheel: Path, pins: list[object]) -> Iterator[str]:
        """One extra alone, in versions that are pinned."""
        name = f"{extra}-{self.n_tried}"
        env, error = created(WORK / name, Path(sys.executable), [*pins, f"{wheel}[{extra}]"])
        if error:
            yield error
            return
        folder = WORK / f"tried-{name}"
        folder.mkdir()
        yield from TRIALS[extra](env, folder)

    def action(self) -> Iterator[str]:
        """The steps of the GitHub action, on this checkout and a committed capture."""
        job = Job(WORK / "action")
        inputs = {"paths": str(smoke.TRACE), "fail-on": "high", "python": sys.executable}
        for number, code in enumerate((0, 1)):  # installed; a finding is as severe as the gate
            done = job.step(number, inputs)
            if done.returncode != code:
                yield f"step {number + 1}: exit code {done.returncode}: {done.stdout}{done.stderr}"
        if not (job.work / "profkit.sarif").exists() or not job.summary():
            yield "no SARIF file or no page of the job was written"


def oldest(extra: str = "") -> list[object]:
    """The lower bounds of what profkit needs, and of an extra, as pins."""
    needs = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"].get(extra, ())]
    return [need.replace(">=", "==") for need in needs]


if __name__ == "__main__":
    sys.exit(main())
