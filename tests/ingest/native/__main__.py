"""`make native-asan`: compile the scanner with gcc's sanitizers and let it read mutated arrays of events.

python -m tests.ingest.native 60        seconds; the exit code is not 0 where a read or write was out of bounds
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import hatch_build
from profkit.ingest.bytes import bytesource
from profkit.ingest.kineto import split
from tests.conftest import ROOT
from tests.fuzz.kinds import native

OUT = ROOT / "out" / "native"
_PER_FILE = 40
_N_DRAWN = 30


def arrays(folder: Path) -> list[Path]:
    """Small arrays of events: some of each of our traces, and drawn ones."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)  # noqa: S311 - inputs, no secrets
    found = {f"drawn{n}": native.array(rng) for n in range(_N_DRAWN)}
    for path in sorted((ROOT / "traces").rglob("*.pt.trace.json.gz"))[::4]:
        chunks = bytesource.read_chunks(path, source=path.name, chunk_bytes=2**18)
        pieces = split.pieces(chunks, split.Document(), source=path.name)
        texts = [text for array in pieces for text in split.elements(array)]
        chosen = rng.sample(texts, min(_PER_FILE, len(texts)))
        found[f"{path.parent.name}-{path.name}"] = b"[" + b",\n".join(chosen) + b"]"
    for name, array in found.items():
        (folder / name).write_bytes(array)
    return [folder / name for name in found]


def main() -> int:
    """Compile, then run for so many seconds."""
    inputs = arrays(OUT / "arrays")
    program = OUT / "asan"
    flags = ("-O1", "-g", "-Wall", "-Wextra", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    source = ROOT / "tests" / "ingest" / "native" / "asan.c"
    hatch_build.compiled(ROOT / hatch_build.FOLDER, program, flags=flags, source=source)
    line = [str(program), sys.argv[1] if len(sys.argv) > 1 else "60", *map(str, inputs)]
    return subprocess.run(line, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
