"""`make native-fuzz`: the scanner beneath libFuzzer, from the corpus beside this file, and the algebra from none.

python -m tests.ingest.native.fuzz 60           seconds; the exit code is not 0 where something was found
python -m tests.ingest.native.fuzz --corpus     choose the corpus anew from our traces and what earlier runs found
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import hatch_build
from tests.conftest import ROOT
from tests.ingest.native.__main__ import arrays

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
OUT = ROOT / "out" / "native"
ALGEBRA = ROOT / "tests" / "native" / "fuzz.c"
SHARE_OF_ALGEBRA = 10
"""A tenth as long again: its inputs are a few numbers."""
FLAGS = ("-O1", "-g", "-Wall", "-Wextra", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all")
MOST_BYTES = 4096
"""Of an input: longer ones say nothing new, and libFuzzer is slower with them."""
MOST_FILES = 60
MOST_BYTES_IN_ALL = 100_000


def clang() -> str:
    """Clang with libFuzzer, or "" where there is none."""
    found = shutil.which("clang")
    if not found:
        return ""
    probe = "int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return d == 0 && n; }"
    line = [found, "-x", "c", "-fsanitize=fuzzer,address,undefined", "-", "-o", os.devnull]
    done = subprocess.run(line, input=probe.encode(), capture_output=True, check=False)
    return "" if done.returncode else found


def program(folder: Path, source: Path = HERE / "fuzz.c") -> Path:
    """Compile a program into a folder; raises CompileError."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["CC"] = "clang"  # what hatch_build asks first
    target = folder / f"fuzz-{source.parent.parent.name}"
    hatch_build.compiled(ROOT / hatch_build.FOLDER, target, flags=FLAGS, source=source)
    return target


def seeds() -> list[Path]:
    """Where a run begins: the committed corpus, and what earlier runs here found."""
    found = OUT / "found"
    found.mkdir(parents=True, exist_ok=True)
    return [found, CORPUS]


def fuzzed(seconds: float) -> int:
    """Run for so many seconds; the exit code. A find is written to out/native and named by libFuzzer."""
    line = [
        str(program(OUT)),
        *map(str, seeds()),
        f"-dict={HERE / 'words.dict'}",
        f"-max_total_time={int(seconds)}",
        f"-max_len={MOST_BYTES}",
        f"-artifact_prefix={OUT}/",
        *("-timeout=120", "-rss_limit_mb=1024", "-print_final_stats=1", "-use_value_profile=1"),
    ]
    return subprocess.run(line, check=False).returncode or algebra_fuzzed(seconds / SHARE_OF_ALGEBRA)


def algebra_fuzzed(seconds: float) -> int:
    """Run the algebra for so many seconds; the exit code."""
    found = OUT / "found-algebra"
    found.mkdir(parents=True, exist_ok=True)
    options = (f"-max_total_time={max(int(seconds), 1)}", "-max_len=300", f"-artifact_prefix={OUT}/algebra-")
    line = [str(program(OUT, ALGEBRA)), str(found), *options, "-print_final_stats=1", "-use_value_profile=1"]
    return subprocess.run(line, check=False).returncode


def choose_corpus() -> int:
    """Few small inputs that reach nearly all that any known one reaches."""
    pool, chosen = OUT / "pool", OUT / "chosen"
    for folder in (pool, chosen):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for path in arrays(OUT / "arrays"):
        for n, event in enumerate(_events(path)):
            (pool / f"{path.name}-{n}").write_bytes(b"[" + event + b"]")
    folders = [str(folder) for folder in (*seeds()[::-1], OUT / "arrays", pool)]
    told = OUT / "merged"
    told.unlink(missing_ok=True)
    folders = [str(folder) for folder in (*seeds(), OUT / "arrays", pool)]
    options = ("-set_cover_merge=1", "-use_counters=0", f"-max_len={MOST_BYTES}", f"-merge_control_file={told}")
    if code := subprocess.run([str(program(OUT)), *options, str(chosen), *folders], check=False).returncode:
        return code
    kept = {path: path.read_bytes()[:MOST_BYTES] for path in _covering(told.read_text().splitlines())}
    shutil.rmtree(CORPUS, ignore_errors=True)
    CORPUS.mkdir()
    for n, text in enumerate(sorted(kept.values(), key=lambda text: (len(text), text))):
        (CORPUS / f"{n:02d}").write_bytes(text)
    return 0


def _covering(lines: list[str]) -> list[Path]:
    """Of the files of libFuzzer's notes on a merge, those that reach most between them: each adds the most it can."""
    paths = [Path(line) for line in lines[2 : 2 + int(lines[0])]]
    reached = {
        int(words[1]): {*words[2:]} for words in (line.split() for line in lines[2 + len(paths) :]) if words[0] == "FT"
    }
    chosen: list[Path] = []
    room = MOST_BYTES_IN_ALL
    while reached and len(chosen) < MOST_FILES:
        best = max(reached, key=lambda n: len(reached[n]) / (4000 + paths[n].stat().st_size))
        new, n_bytes = reached.pop(best), min(paths[best].stat().st_size, MOST_BYTES)
        if not new:
            break
        if n_bytes <= room:
            room -= n_bytes
            chosen.append(paths[best])
            reached = {n: left - new for n, left in reached.items()}
    return chosen


def _events(path: Path) -> list[bytes]:
    try:
        return [json.dumps(event).encode() for event in json.loads(path.read_bytes())]
    except ValueError:
        return []


def main() -> int:
    """Fuzz, or choose the corpus; 0 without clang, which is said."""
    if not clang():
        print("native-fuzz: no clang with libFuzzer here (apt-get install clang libclang-rt-dev); nothing was run")
        return 0
    if sys.argv[1:] == ["--corpus"]:
        return choose_corpus()
    return fuzzed(float(sys.argv[1]) if len(sys.argv) > 1 else 60)


if __name__ == "__main__":
    sys.exit(main())
