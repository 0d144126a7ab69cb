"""`make native-asan` and `make native-fuzz`: the scanner under sanitizers reads mutated arrays of events.

python -m tests.ingest.native 60            seconds; the exit code is not 0 where a read or write was out of bounds
python -m tests.ingest.native 60 --guided   the same by clang's libFuzzer, which begins with tests/ingest/native/corpus
                                            and keeps what it finds in out/native/corpus
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import hatch_build
from profkit.ingest.bytes import bytesource
from profkit.ingest.kineto import split
from tests.conftest import ROOT
from tests.fuzz.kinds import native

HERE = Path(__file__).parent
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
        pieces = split.pieces(chunks, split.Document(), source=path.name, exact=True)
        texts = [text for array in pieces for text in split.elements(array)]
        chosen = rng.sample(texts, min(_PER_FILE, len(texts)))
        found[f"{path.parent.name}-{path.name}"] = b"[" + b",\n".join(chosen) + b"]"
    for name, array in found.items():
        (folder / name).write_bytes(array)
    return [folder / name for name in found]


def guided(seconds: int) -> int:
    """Compile for libFuzzer and run it for so many seconds; what no clang can compile is told and no failure."""
    clang = shutil.which("clang")
    if clang is None:
        print("native-fuzz: no clang (Debian: clang libclang-rt-dev); nothing was tried")
        return 0
    kept, finds = OUT / "corpus", OUT / "finds"
    for folder in (kept, finds):
        folder.mkdir(parents=True, exist_ok=True)
    for path in arrays(OUT / "arrays"):
        (kept / path.name).write_bytes(b"\0" + path.read_bytes())
    program = OUT / "libfuzzer"
    flags = ("-O1", "-g", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all")
    source = HERE / "libfuzzer.c"
    subprocess.run([clang, "-std=c11", *flags, str(source), "-o", str(program)], check=True)
    options = [f"-max_total_time={seconds}", f"-dict={HERE / 'words.dict'}", "-max_len=16384", "-timeout=10"]
    options += [f"-artifact_prefix={finds}/", "-print_final_stats=1", "-verbosity=1"]
    line = [str(program), *options, str(kept), str(HERE / "corpus")]
    with (OUT / "libfuzzer.log").open("w") as log:
        code = subprocess.run(line, check=False, stdout=log, stderr=log).returncode
    print("\n".join((OUT / "libfuzzer.log").read_text(errors="replace").splitlines()[-12:]))
    return code


def main() -> int:
    """Compile, then run for so many seconds."""
    if "--guided" in sys.argv:
        return guided(next((int(word) for word in sys.argv[1:] if word.isdigit()), 60))
    inputs = arrays(OUT / "arrays")
    program = OUT / "asan"
    flags = ("-O1", "-g", "-Wall", "-Wextra", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    source = HERE / "asan.c"
    hatch_build.compiled(ROOT / hatch_build.FOLDER, program, flags=flags, source=source)
    line = [str(program), sys.argv[1] if len(sys.argv) > 1 else "60", *map(str, inputs)]
    return subprocess.run(line, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
