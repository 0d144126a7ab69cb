"""`python -m tests.sim`: two hundred drawn jobs, predicted ceilings beside true gains; exit 1 if the bar is missed."""

import argparse
import sys

from tests.sim.job import CAUSES
from tests.sim.tally import CLOSE, Compared, close_share, tally, unbooked_share


def main() -> int:
    """Print the tally."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    found = tally(range(asked.seed, asked.seed + asked.jobs))
    sys.stdout.write("cause       n    below   within 20 %   the budget's part is below\n")
    for cause in CAUSES:
        _line(cause, [one for one in found if one.cause == cause])
    _line("all", found)
    for one in found:
        if one.is_below or not one.is_close:
            kind = "below" if one.is_below else "wide"
            sys.stdout.write(
                f"{kind:6} seed {one.seed:4} {one.cause:10} predicted {one.predicted_ns / 1e6:9.3f} ms, true"
                f" {one.true_ns / 1e6:9.3f} ms of a window of {one.window_ns / 1e6:.3f} ms\n"
            )
    return int(any(one.is_below for one in found) or close_share(found) < CLOSE)


def _line(name: str, found: list[Compared]) -> None:
    below = sum(one.is_below for one in found)
    close, unbooked = close_share(found), unbooked_share(found)
    sys.stdout.write(f"{name:10} {len(found):3}   {below:4}   {100 * close:10.1f} %   {100 * unbooked:10.1f} %\n")


if __name__ == "__main__":
    sys.exit(main())
