"""Run the accuracy benchmark: measure each cell's label, ask each tool, append a row to results.jsonl.

    python -m analyses.accuracy.run [--quick] [--only PATTERN] [--limit-minutes 60] [--probe]

Cells that have a row are not run again. A cell that fails has a row with `error`. What the recordings of a cell said is
kept under out/accuracy/, so that a wrong verdict can be looked at.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import torch
from msgspec.structs import replace

import profkit
from analyses.accuracy.cell import CellResult, Said
from analyses.accuracy.cells import QUICK, Cell, matching
from analyses.accuracy.label import blocks, of_pairs, pairs, read_times
from analyses.accuracy.programs.loop import is_on
from analyses.accuracy.programs.registry import PATHOLOGIES
from analyses.accuracy.reports import said

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent
KEPT: Final = ROOT / "out" / "accuracy"
_N_STEPS: Final = 60
"""Steps of a run that profkit records: of the default window it takes 50 at most."""
_N_PROBED: Final = 200
"""Steps of a run that profkit probes. Chosen: of one place, it settles a slope to some 0.2."""
_LIMIT_S: Final = 240
_MAX_RUNS: Final = 3
"""Runs of ranks until one ends well. Chosen: gloo aborts now and then at a run's end (`analyses.rank_runs`)."""
_LARGE: Final = 0.1
"""The gain from which the pathology's class alone is surely right."""
_TELLS: Final = 400
"""Characters of a failed command's last words that a row keeps."""


class CellFailedError(Exception):
    """A run of a cell ended badly; the message says which and its last words."""


def measured(cell: Cell, folder: Path, *, has_probe: bool = False) -> CellResult:
    """Gives the row of a cell: its label, what the tools said of a recording, and a slope where one is asked for."""
    begin, load = time.monotonic(), os.getloadavg()[0]
    row = cell.row()
    try:
        n_before, n_after = halves(PATHOLOGIES[cell.pathology].n_blocks)
        found = _paired(cell, folder, n_before)
        row = replace(row, tools=_asked(cell, folder))
        found += _paired(cell, folder, n_after)
        row = replace(row, **msgspec.structs.asdict(of_pairs(found)))
        row = _probed(row, cell, folder) if has_probe else row
    except CellFailedError as failure:
        row = replace(row, error=str(failure))
    except (OSError, ValueError, KeyError, msgspec.MsgspecError) as failure:  # what a run wrote is missing, or odd
        row = replace(row, error=f"{type(failure).__name__}: {failure}")
    return replace(row, load=load, duration_s=time.monotonic() - begin, versions=versions())


def versions() -> dict[str, str]:
    """Gives what the row was measured with."""
    return {
        "profkit": profkit.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "cores": str(os.cpu_count()),
    }


def halves(n_blocks: int) -> tuple[int, int]:
    """How many blocks of the label are measured before the recording and after it: whole pairs.

    The clock of a machine may change between a label and a recording; a label from both sides has that in its interval.
    """
    n_before = 2 * -(-n_blocks // 4)
    return n_before, n_blocks - n_before


def _paired(cell: Cell, folder: Path, n_blocks: int) -> list[tuple[float, float]]:
    """Gives so many blocks of the label run as pairs of mean steps with and without the pathology, ns."""
    times, kind = folder / "times.json", PATHOLOGIES[cell.pathology]
    written = ["--alternate", str(kind.block), "--times", str(times)]
    if not kind.rates:
        _run([*program(cell, kind.block * n_blocks), *written], n_runs=_n_runs(cell))
        return pairs(blocks(read_times(times)))
    steps = []
    for block in range(n_blocks):
        _run([*program(cell, kind.block, has_rate=is_on(block)), *written], n_runs=_n_runs(cell))
        steps += blocks(read_times(times))
    return pairs(steps)


def _asked(cell: Cell, folder: Path) -> dict[str, Said]:
    traces, report = folder / "traces", folder / "report.json"
    asked = ["-m", "profkit", "run", "--folder", str(traces), "--overwrite", "-f", "json", "-o", str(report), "--"]
    _run([sys.executable, *asked, *program(cell, _N_STEPS)], n_runs=_n_runs(cell))
    tools = {"profkit": said(json.loads(report.read_text(encoding="utf-8")))}
    try:
        peers = importlib.import_module("analyses.accuracy.peers")
    except ModuleNotFoundError:
        return tools
    return {**tools, **peers.said(traces)}


def _probed(row: CellResult, cell: Cell, folder: Path) -> CellResult:
    """Gives the row with the slope of `profkit probe` at the pathology's place, where it has one."""
    place, report = PATHOLOGIES[cell.pathology].place, folder / "probe.json"
    if not place:
        return row
    delays = ["--places", place, "--probed-steps", str(_N_PROBED), "-f", "json", "-o", str(report)]
    _run([sys.executable, "-m", "profkit", "probe", *delays, "--", *program(cell, _N_PROBED + _N_STEPS)], n_runs=1)
    slopes = json.loads(report.read_text(encoding="utf-8"))["slopes"]
    slope = next((each for each in slopes if each["place"] == place), None)
    return replace(row, slope=slope["slope"], slope_interval=tuple(slope["interval"])) if slope else row


def _n_runs(cell: Cell) -> int:
    return _MAX_RUNS if cell.n_ranks > 1 else 1


def program(cell: Cell, n_steps: int, *, has_rate: bool = True) -> list[str]:
    """Gives the command of a cell's program; without `has_rate`, over the same link without its limit."""
    flags = ["-m", "analyses.accuracy.program", *cell.flags(), "--steps", str(n_steps)]
    if rates := PATHOLOGIES[cell.pathology].rates:
        slow = "both" if has_rate else "none"
        lab = ["-m", "workloads.netlab", "--rate", rates[cell.dose], "--slow", slow, "--"]
        return [sys.executable, *lab, *flags]
    if cell.n_ranks == 1:
        return [sys.executable, *flags]
    endpoint = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]  # a free port, whoever else runs
    return [sys.executable, "-m", "torch.distributed.run", *endpoint, "--nproc-per-node", str(cell.n_ranks), *flags]


def _run(command: Sequence[str], *, n_runs: int) -> None:
    """Runs a command, again if it crashes, so many times at most; raises `CellFailedError` if it never ends well."""
    words = ""
    for _ in range(n_runs):
        code, words = _ended(command)
        if code == 0:
            return
    raise CellFailedError(f"exit code {code} of {' '.join(command[1:4])}: {words}")


def _ended(command: Sequence[str]) -> tuple[int, str]:
    """Gives the exit code of a command and its last words; raises `CellFailedError` if it takes too long."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    out = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=out, text=True, start_new_session=True
    ) as child:
        try:
            _, words = child.communicate(timeout=_LIMIT_S)
        except BaseException as stopped:
            os.killpg(child.pid, signal.SIGKILL)  # the script, its ranks and what burns beside it, too
            if isinstance(stopped, subprocess.TimeoutExpired):
                raise CellFailedError(f"ran longer than {_LIMIT_S} s: {' '.join(command[1:4])}") from stopped
            raise
    return child.returncode, words.strip()[-_TELLS:]


def is_wrong(row: CellResult) -> bool:
    """Whether the recording is worth keeping: the cell failed, or profkit's verdict may not be right.

    What counts as right in the scores, where the interval of the gain matters too, is in `analyses.accuracy.truth`.
    """
    if row.error or row.gain is None:
        return True
    right = {row.expected} if row.gain >= _LARGE else {row.base}
    return row.tools["profkit"].bottleneck not in right


def done_keys(path: Path) -> set[str]:
    """Gives the cells that have a row."""
    if not path.exists():
        return set()
    decoder = msgspec.json.Decoder(CellResult)
    return {decoder.decode(line).key for line in path.read_bytes().splitlines() if line}


def forget_failed(path: Path) -> None:
    """Takes the rows of cells that failed out of the file."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    decoder = msgspec.json.Decoder(CellResult)
    path.write_bytes(b"".join(line for line in lines if not decoder.decode(line).error))


def run(
    chosen: Sequence[Cell], results: Path, *, limit_s: float, has_probe: bool = False, keeps_all: bool = False
) -> None:
    """Runs the cells that have no row yet, until the time is up; tells how far it is."""
    known = done_keys(results)
    todo = [cell for cell in chosen if cell.key not in known]
    hint = "" if todo or not chosen else ": --again measures them anew"
    print(f"{len(chosen)} cells, {len(chosen) - len(todo)} done before{hint}", file=sys.stderr, flush=True)
    begin = time.monotonic()
    for number, cell in enumerate(todo, start=1):
        if time.monotonic() - begin > limit_s:
            print(f"the time is up with {len(todo) - number + 1} cells to go", file=sys.stderr, flush=True)
            return
        folder = KEPT / cell.slug
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        row = measured(cell, folder, has_probe=has_probe)
        with results.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")
        if not keeps_all and not is_wrong(row):
            shutil.rmtree(folder)
        left_s = (time.monotonic() - begin) / number * (len(todo) - number)
        print(f"{number:4} of {len(todo)}, {left_s / 60:.0f} min to go: {told(row)}", file=sys.stderr, flush=True)


def told(row: CellResult) -> str:
    """Gives a row as a line for people."""
    if row.error:
        return f"{row.key}: {row.error.splitlines()[-1][:150]}"
    gain = "not measured" if row.gain is None else f"{100 * row.gain:5.1f} %"
    if row.gain is not None and row.gain_interval:
        gain += f" ({100 * row.gain_interval[0]:.1f} to {100 * row.gain_interval[1]:.1f})"
    answer = row.tools["profkit"]
    ceiling = "" if answer.gain is None else f" up to {100 * answer.gain:.1f} %"
    healthy = ", healthy" if answer.is_healthy else ""
    off = f" of {(row.step_off_ns or 0) / 1e6:.1f} ms"
    return f"{row.key}: gain {gain}{off}; {answer.bottleneck}{healthy}{ceiling}, {' '.join(answer.finding_ids)}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"a fixed sample of {QUICK} cells: under ten minutes")
    parser.add_argument(
        "--only",
        default="",
        metavar="PATTERN",
        help="cells with this regular expression in their key",
    )
    parser.add_argument("--limit-minutes", type=float, default=float("inf"), help="start no cell after so long (never)")
    parser.add_argument("--probe", action="store_true", help="also probe cells of the loader: some 10 s more for each")
    parser.add_argument("--keep", action="store_true", help="keep every recording, for `analyses.accuracy.again`")
    parser.add_argument("--again", action="store_true", help="begin anew: earlier rows are set aside, as FILE.before")
    parser.add_argument("--retry", action="store_true", help="measure cells that failed again")
    parser.add_argument("--results", type=Path, help="the file of rows (results.jsonl here; of --quick, out/accuracy/)")
    return parser.parse_args()


def main() -> None:
    """Run the cells that are asked for."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what runs is ended with us
    chosen = _arguments()
    picked = matching(chosen.only)
    KEPT.mkdir(parents=True, exist_ok=True)
    results = chosen.results or (KEPT / "quick.jsonl" if chosen.quick else HERE / "results.jsonl")
    if chosen.again and results.exists():
        results.replace(results.with_name(f"{results.name}.before"))
    if chosen.retry:
        forget_failed(results)
    cells = picked[:QUICK] if chosen.quick else picked
    limit_s = 60 * chosen.limit_minutes
    run(cells, results, limit_s=limit_s, has_probe=chosen.probe, keeps_all=chosen.keep)


if __name__ == "__main__":
    main()
