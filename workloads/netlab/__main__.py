"""Run a job of several ranks over hosts of this machine's own making, with slow links between them.

python -m workloads.netlab --rate 200mbit --slow both -o out/slow -- -m workloads.ddp --hidden 256
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from workloads import own_python
from workloads.netlab.hosts import ROOT, lab
from workloads.netlab.plan import planned
from workloads.netlab.rights import NoLabError, why_not
from workloads.options import count

EPILOG: Final = """\
examples:
  python -m workloads.netlab -- -m workloads.ddp --hidden 256 --json
  python -m workloads.netlab --slow none -- -m workloads.ddp --hidden 256 --json
  python -m workloads.netlab --hosts 3 --slow host1 -o out/host1 -- -m workloads.ddp --hidden 256
  profkit capture -o out/slow -- python -m workloads.netlab -- -m workloads.ddp --hidden 256
  profkit triage out/slow

It takes root, or a kernel that lets users make namespaces; --check says whether this machine can.
"""
SKIPPED: Final = 4
"""The exit code where no lab can be made, as `profkit` has it for what is missing here."""


def read_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends with a usage error for a lab that cannot be."""
    parser = argparse.ArgumentParser(
        prog="python -m workloads.netlab",
        description="Run a job over hosts that are network namespaces of this machine, with slow links between them.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--hosts", type=count, default=2, help="how many hosts, 2 to 8 (2)")
    parser.add_argument("--ranks-per-host", type=count, default=1, help="ranks on each host (1)")
    parser.add_argument("--rate", default="200mbit", help="the rate of a slow link, as tc writes it (200mbit)")
    parser.add_argument(
        "--slow",
        default="both",
        help="whose links are slow: both (every host's), none, host1 (both directions), host1:out, host1:in;"
        " several with commas (both)",
    )
    parser.add_argument("-o", "--output", type=Path, help="capture the job with profkit into this folder")
    parser.add_argument("--steps", type=count, help="with -o: how many steps to record (profkit's choice)")
    parser.add_argument("--check", action="store_true", help="only say whether a lab can be made here, and why not")
    parser.add_argument(
        "job", nargs="*", metavar="-- ARGS", help="what torchrun runs: -m MODULE or a script, with flags"
    )
    args = parser.parse_args(arguments)
    if not args.check and not args.job:
        parser.error("nothing to run: -- -m workloads.ddp")
    try:
        planned(hosts=args.hosts, rate=args.rate, slow=args.slow)
    except ValueError as error:
        parser.error(str(error))
    return args


def under_capture(args: argparse.Namespace) -> list[str]:
    """The command that does the same under `profkit capture`."""
    steps = () if args.steps is None else ("--steps", str(args.steps))
    window = ["-m", "profkit", "capture", "-o", str(args.output), "--overwrite", *steps, "--"]
    size = ("--hosts", str(args.hosts), "--ranks-per-host", str(args.ranks_per_host))
    again = ["-m", "workloads.netlab", *size, "--rate", args.rate, "--slow", args.slow, "--", *args.job]
    return [sys.executable, *window, "python", *again]


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; gives the exit code, of the first host that failed where one did."""
    args = read_arguments(arguments)
    if reason := why_not():
        print(f"no lab of hosts can be made here: {reason}", file=sys.stderr)
        return SKIPPED
    if args.check:
        print("a lab of hosts can be made here")
        return 0
    if args.output is not None:
        return subprocess.run(under_capture(args), cwd=ROOT, env=own_python.environment(), check=False).returncode
    signal.signal(signal.SIGTERM, _stop)
    try:
        with lab(hosts=args.hosts, rate=args.rate, slow=args.slow) as hosts:
            commands = hosts.torchrun(args.job, ranks_per_host=args.ranks_per_host)
            ended = hosts.run(commands, env={"OMP_NUM_THREADS": "1"}, cwd=Path.cwd())
    except NoLabError as error:
        print(f"no lab of hosts can be made here: {error}", file=sys.stderr)
        return SKIPPED
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return next((one.code if one.code > 0 else 128 - one.code for one in ended if one.code), 0)


if __name__ == "__main__":
    sys.exit(main())
