"""What the hooks of `profkit capture` cost while nothing is recorded: interleaved runs with and without them.

python -m bench.hooks                    10 pairs of the overhead regime
python -m bench.hooks --pairs 4 --regime baseline
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from workloads.presets import REGIMES

ROOT: Final = Path(__file__).resolve().parent.parent
T_975: Final = {3: 3.182, 5: 2.571, 7: 2.365, 9: 2.262, 11: 2.201, 14: 2.145, 19: 2.093}
"""Student's t by degrees of freedom, for the numbers of pairs that make sense here."""
NEVER: Final = 100_000
"""More baseline steps than any run makes: the hooks wait all the time, the profiler never starts."""


def step_ms(regime: str, n_steps: int, *, is_hooked: bool) -> float:
    """Run the workload once, in its own process; give the mean of its steps, the first 5 left out."""
    workload = [sys.executable, "-m", "workloads.train", "--regime", regime, "--device", "cpu", "--json"]
    workload += ["--steps", str(n_steps), "--skip", "5"]
    with tempfile.TemporaryDirectory() as folder:
        capture = [sys.executable, "-m", "profkit", "capture", "-o", folder, "--baseline", str(NEVER), "--"]
        command = [*capture, *workload] if is_hooked else workload
        done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=True)
    row: dict[str, float] = json.loads(done.stdout)
    return row["step_mean_ms"]


def main() -> int:
    """Run the pairs, in an order that turns around each time, and print what they say."""
    parser = argparse.ArgumentParser(prog="python -m bench.hooks", description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, choices=[n + 1 for n in T_975], default=10, help="pairs of runs (10)")
    parser.add_argument("--regime", choices=REGIMES, default="overhead", help="the workload (overhead)")
    parser.add_argument("--steps", type=int, default=150, help="steps of each run (150)")
    options = parser.parse_args()
    ratios: list[float] = []
    for pair in range(options.pairs):
        order = (False, True) if pair % 2 == 0 else (True, False)
        means = {is_hooked: step_ms(options.regime, options.steps, is_hooked=is_hooked) for is_hooked in order}
        ratios.append(means[True] / means[False] - 1)
        print(
            f"pair {pair + 1:2}: plain {means[False]:.3f} ms, hooked {means[True]:.3f} ms, {ratios[-1]:+.2%}",
            flush=True,
        )
    mean, error = statistics.fmean(ratios), statistics.stdev(ratios) / len(ratios) ** 0.5
    reach = T_975[len(ratios) - 1] * error
    print(f"hooks alone, {options.regime}: {mean:+.2%}, 95 % interval [{mean - reach:+.2%}, {mean + reach:+.2%}]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
