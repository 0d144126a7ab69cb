"""`python -m tests.fuzz`: try inputs, print what was found; exit 1 if anything was."""

import argparse
import random
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz import finds
from tests.fuzz.finds import Find
from tests.fuzz.kinds import KINDS, case_of
from tests.fuzz.supervisor import Plan, Supervisor
from tests.fuzz.worker import Trial


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzzer; gives the exit code."""
    options = _parsed(arguments)
    if options.only:
        return _one(options.only, out=options.out, minimise_s=options.minimise_s if options.keep else 0)
    seed = options.seed or str(random.SystemRandom().randrange(10**8))
    kinds = [*KINDS] if options.kinds == "all" else options.kinds.split(",")
    plan = Plan(
        seed=seed,
        kinds=kinds,
        minutes=10**6 if options.inputs and options.minutes is None else (options.minutes or 2),
        jobs=options.jobs,
        start=options.start,
        n_inputs=options.inputs,
        out=options.out.absolute(),
        minimise_s=options.minimise_s,
    )
    limit = f"{plan.n_inputs:,} inputs" if options.inputs else f"{plan.minutes:g} minutes"
    sys.stdout.write(
        f"fuzz: seed {seed}, from input {plan.start} of {', '.join(kinds)}; {limit}, {plan.jobs} at a time\n"
    )
    sys.stdout.flush()
    begun = time.monotonic()
    supervisor = Supervisor(plan)
    supervisor.run()
    sys.stdout.write(summary(supervisor, time.monotonic() - begun))
    return int(bool(supervisor.finds))


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, help="stop after so long (2, or never with --inputs)")
    parser.add_argument("--inputs", type=int, default=0, help="stop after so many")
    parser.add_argument("--seed", help="any text; drawn and printed otherwise")
    parser.add_argument("--kinds", default="all", help=f"of {','.join(KINDS)}")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--start", type=int, default=0, help="begin at this input of each kind")
    parser.add_argument("--only", metavar="SEED:KIND:I", help="try one input and print what it does")
    parser.add_argument("--keep", action="store_true", help="with --only: make its finds smaller and write them")
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"), help="where finds are written")
    parser.add_argument("--minimise-s", type=float, default=15.0, help="seconds for making a find smaller")
    return parser.parse_args(arguments)


def _one(only: str, *, out: Path, minimise_s: float) -> int:
    seed, kind, index = only.rsplit(":", 2)
    case = case_of(seed, kind, int(index))
    out = out.absolute()
    n_faults = 0
    with TemporaryDirectory(prefix="profkit-fuzz-") as folder:
        trial = Trial(Path(folder) / "in")
        sys.stdout.write(f"{only}: {', '.join(case.files)}; {', '.join(case.done)}\n")
        for outcome, faults in trial.outcomes(case):
            sys.stdout.write(finds.shown(outcome, faults))
            n_faults += len(faults)
            for fault in faults if minimise_s else ():
                alone = case.but(commands=[outcome.args])
                find = Find(fault=fault, case=alone, only=only, traceback=outcome.traceback)
                sys.stdout.write(f"      {finds.write(trial.smaller(find, limit_s=minimise_s), out)}\n")
    return int(n_faults > 0)


def summary(supervisor: Supervisor, seconds: float) -> str:
    """The table of what was tried, and the finds."""
    columns = "{:<10}{:>9}{:>10}{:>9}{:>7}{:>10}{:>20}{:>20}".format
    lines = ["", columns("kind", "inputs", "accepted", "refused", "finds", "per CPU s", "slowest", "peak memory")]
    for kind, tally in supervisor.tallies.items():
        counts = (tally.n, tally.codes[0] + tally.codes[1], sum(tally.codes[code] for code in (2, 3, 4)))
        n_finds = sum(found["kind"] == kind for found in supervisor.finds.values())
        rate = tally.n / tally.cpu_s if tally.cpu_s else 0.0
        slowest, peak = (f"{tally.slowest[0]:.2f} s, {tally.slowest[1]}", f"{tally.peak_mb[0]} MiB, {tally.peak_mb[1]}")
        lines.append(columns(kind, *(f"{count:,}" for count in counts), n_finds, f"{rate:.1f}", slowest, peak))
    n = sum(tally.n for tally in supervisor.tallies.values())
    lines += [
        f"{n:,} inputs in {seconds:.0f} s, {n / max(seconds, 0.001):.1f} a second; seed {supervisor.plan.seed}",
        "",
    ]
    for found in sorted(supervisor.finds.values(), key=lambda one: one["signature"]):
        lines.append(f"  {found['signature'][:150]}  --only {found['only']}")
    lines.append(f"{len(supervisor.finds)} finds" + (f", in {supervisor.plan.out}" if supervisor.finds else ""))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
