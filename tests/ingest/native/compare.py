"""`make native-compare`: the scanner's way beside Python's, on mutated arrays of events and mutated whole files.

python -m tests.ingest.native.compare 100000 [--seed 7]        inputs; the exit code is 1 where one differs

Every tenth input is a whole file, read as `read_trace` does; the others are arrays, a third of them with single bytes
changed besides. Identical columns or the identical error: nothing between counts.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.conftest import ROOT
from tests.fuzz.kinds import kineto, native
from tests.ingest.both_ways import IS_NATIVE, decoded_both_ways, read_both_ways, reason

OUT = ROOT / "out" / "native"
_EVERY_FILE = 10
_EVERY_BYTES = 3


def compared(rng: random.Random, n: int, scratch: Path) -> tuple[str, bytes | None]:
    """One input, the nth: what became of it, and its bytes where the two ways differ."""
    if n % _EVERY_FILE == 0:
        ((_, file),) = kineto.drawn(rng).files.items()
        text = file.data()
        scratch.write_bytes(text)
        by_scanner, plain = read_both_ways(scratch, lenient=rng.random() < 0.3)
        kind = "files refused" if isinstance(plain, tuple) and len(plain) == 3 else "files read"
    else:
        text = native.array(rng)
        if n % _EVERY_BYTES == 0:
            text = with_changed_bytes(rng, text)
        is_strict = rng.random() < 0.5
        by_scanner, plain = decoded_both_ways(text, unique_keys=is_strict)
        told = reason(text, unique_keys=is_strict)
        kind = (
            "arrays taken" if told == "taken" else "arrays left, refused" if isinstance(plain, str) else "arrays left"
        )
    return kind, None if by_scanner == plain else text


def with_changed_bytes(rng: random.Random, text: bytes) -> bytes:
    """A text with some bytes changed, taken out or written twice."""
    changed = bytearray(text)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(changed) + 1)
        changed[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
    return bytes(changed)


def main() -> int:
    """Compare, and print how many inputs there were of each kind."""
    parser = argparse.ArgumentParser(prog="python -m tests.ingest.native.compare", description=__doc__)
    parser.add_argument("inputs", type=int, nargs="?", default=10_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**8))
    options = parser.parse_args()
    if not IS_NATIVE:
        print("native-compare: the scanner is not in use here; nothing was compared")
        return 0
    counts: Counter[str] = Counter()
    unlike: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="profkit-compare-") as folder:
        for n in range(options.inputs):
            rng = random.Random(f"{options.seed}:{n}")  # noqa: S311 - inputs, no secrets
            kind, text = compared(rng, n, Path(folder) / "t.json")
            counts[kind] += 1
            if text is not None:
                OUT.mkdir(parents=True, exist_ok=True)
                unlike.append(OUT / f"unlike-{options.seed}-{n}")
                unlike[-1].write_bytes(text)
    told = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
    print(f"seed {options.seed}: {options.inputs:,} inputs, {len(unlike)} unlike; {told}")
    for path in unlike[:20]:
        print(f"  {path}")
    return int(bool(unlike))


if __name__ == "__main__":
    sys.exit(main())
