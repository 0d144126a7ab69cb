"""What the hooks of `profkit capture` cost while nothing is recorded: `profkit bench` of a run with and without them.

python -m bench.hooks                    10 blocks of the overhead regime
python -m bench.hooks --blocks 4 --regime baseline
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from workloads.presets import REGIMES

ROOT: Final = Path(__file__).resolve().parent.parent
TABLE: Final = ROOT / "out" / "hooks.csv"
NEVER: Final = 100_000
"""More baseline steps than any run makes: the hooks wait all the time, the profiler never starts."""


def main() -> int:
    """Run the blocks and print what the judge says of them; gives the exit code of `profkit bench`."""
    parser = argparse.ArgumentParser(prog="python -m bench.hooks", description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=10, help="runs of each (10)")
    parser.add_argument("--regime", choices=REGIMES, default="overhead", help="the workload (overhead)")
    parser.add_argument("--steps", type=int, default=150, help="steps of each run (150)")
    options = parser.parse_args()
    workload = [sys.executable, "-m", "workloads.train", "--regime", options.regime, "--device", "cpu", "--json"]
    workload += ["--steps", str(options.steps), "--skip", "5"]
    profkit = [sys.executable, "-m", "profkit"]
    TABLE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        capture = [
            *profkit,
            "capture",
            "-o",
            f"{folder}/out",
            "--overwrite",
            "--unprofiled-steps",
            str(NEVER),
            "--",
            *workload,
        ]
        bench = [*profkit, "bench", "-n", str(options.blocks), "-o", str(TABLE), "--overwrite"]
        bench += ["--metric-regex", '"step_mean_ms": (?P<step_ms>[0-9.]+)']
        return subprocess.run([*bench, "--", *workload, "--vs", *capture], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
