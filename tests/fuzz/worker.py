"""A process that tries inputs: reads `kind start count` from standard input, tells of each on standard output.

b KIND I                    an input begins
e KIND I CODE CPU_S WALL_S MB    and has ended
m SECONDS                   a find is being made smaller, so long at most
f {...}                     a find, as JSON; its folder is written
d                           that was all that was asked for
"""

import json
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from profkit.errors import RAISE
from tests.fuzz import finds
from tests.fuzz.documents import Case
from tests.fuzz.finds import Find
from tests.fuzz.kinds import case_of
from tests.fuzz.minimise import Shrinker
from tests.fuzz.oracles import Fault
from tests.fuzz.target import LIMIT_CPU_S, Outcome, TooSlow, at_home, limit_memory, warm

_SLOW_ENOUGH_CPU_S = 1.5
"""What a slow input may take while it is made smaller."""


@dataclass
class Trial:
    """Runs cases in a folder of its own, emptied before each."""

    folder: Path
    home: Path = field(init=False)
    limit_cpu_s: float = LIMIT_CPU_S

    def __post_init__(self) -> None:
        self.home = self.folder.with_name(self.folder.name + "-home")
        self.home.mkdir(parents=True, exist_ok=True)
        os.environ.update(HOME=str(self.home), TMPDIR=str(self.home), XDG_CACHE_HOME=str(self.home), COLUMNS="100")
        os.environ[RAISE] = "1"  # what a user is spared is a find
        for name in ("NO_COLOR", "FORCE_COLOR", "PROFKIT_CACHE"):
            os.environ.pop(name, None)

    def outcomes(self, case: Case) -> list[tuple[Outcome, list[Fault]]]:
        """Each command of a case with its faults."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.home, ignore_errors=True)
        self.folder.mkdir(parents=True)
        at_home(self.home)
        case.write(self.folder)
        os.chdir(self.folder)
        return finds.outcomes_of(case, self.folder, limit_cpu_s=self.limit_cpu_s)

    def smaller(self, find: Find, *, limit_s: float) -> Find:
        """The find with a smaller case."""
        signature = find.fault.signature
        is_slow = find.fault.oracle == "slow"

        def shows(case: Case) -> bool:
            if find.fault.oracle == "secret" and not all(secret.is_in(case) for secret in case.secrets):
                return False
            found = self.outcomes(case)
            if is_slow:
                return any(isinstance(outcome.error, TooSlow) for outcome, _ in found)
            return any(fault.signature == signature for _, faults in found for fault in faults)

        self.limit_cpu_s = _SLOW_ENOUGH_CPU_S if is_slow else LIMIT_CPU_S
        shrinker = Shrinker(find.case, shows, limit_s=limit_s)
        case = shrinker.run()
        self.limit_cpu_s = LIMIT_CPU_S
        return replace(find, case=case, is_small=shrinker.n_tries > 0)


@dataclass
class Worker:
    """Tries inputs and tells of them."""

    seed: str
    out: Path
    trial: Trial
    tell: IO[str]
    minimise_s: float
    known: set[str] = field(default_factory=set)

    def try_one(self, kind: str, index: int) -> list[Find]:
        """Try an input; gives the new finds, written."""
        self._say(f"b {kind} {index}")
        cpu_begun, begun = time.process_time(), time.perf_counter()
        case = case_of(self.seed, kind, index)
        found = self.trial.outcomes(case)
        cpu_s, wall_s = time.process_time() - cpu_begun, time.perf_counter() - begun
        new: list[Find] = []
        for outcome, faults in found:
            for fault in faults:
                if fault.signature not in self.known:
                    self.known.add(fault.signature)
                    alone = case.but(commands=[*(other.args for other in outcome.others), outcome.args])
                    if fault.oracle != "agrees":
                        alone = case.but(commands=[outcome.args])
                    only = f"{self.seed}:{kind}:{index}"
                    new.append(self._written(Find(fault=fault, case=alone, only=only, traceback=outcome.traceback)))
        worst = max(outcome.code for outcome, _ in found)
        peak = max(outcome.peak_bytes for outcome, _ in found) >> 20
        self._say(f"e {kind} {index} {worst} {cpu_s:.4f} {wall_s:.4f} {peak}")
        return new

    def _written(self, find: Find) -> Find:
        self._say(f"m {self.minimise_s}")
        small = self.trial.smaller(find, limit_s=self.minimise_s) if self.minimise_s else find
        self._say(f"f {json.dumps({**finds.about(small), 'place': str(finds.write(small, self.out))})}")
        return small

    def _say(self, line: str) -> None:
        self.tell.write(f"{line}\n")
        self.tell.flush()


def main() -> None:
    """Read what to try until there is no more."""
    options = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides
    tell = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(
        seed=options["seed"],
        out=Path(options["out"]),
        trial=Trial(Path(options["folder"])),
        tell=tell,
        minimise_s=options["minimise_s"],
        known=set(options["known"]),
    )
    warm()
    for kind in options["kinds"]:
        worker.trial.outcomes(case_of("warm", kind, 0))
    limit_memory()
    for line in sys.stdin:
        kind, start, count = line.split()
        for index in range(int(start), int(start) + int(count)):
            worker.try_one(kind, index)
        tell.write("d\n")
        tell.flush()


if __name__ == "__main__":
    main()
