"""Records the committed exports of a real nsys in `traces/nsys_*`, without a GPU, and writes their NSYS.toml.

An export holds the environments of all processes of the machine, their names, paths and what the job printed. So
nothing is taken out of it: a new database gets the few tables that profkit reads, the rows of the job, their strings.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import shlex
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FILE: Final = "profile.sqlite.gz"
NAME: Final = "NSYS.toml"
HEADER: Final = """\
# Recorded by `python -m workloads.record_nsys`: a real nsys on jobs without a GPU. `command` records one again,
# from the repository root, as profile.sqlite; here are its ranges, the calls of the operating system within the marked
# steps, and nothing else of the export. `bottleneck` is what these rows allow to say, `truth` what the job does.
"""
CASES: Final = (
    ("data", "data-bound", "Every sample sleeps 2 ms in __getitem__ and nothing loads ahead: each step waits for it."),
    (
        "overhead",
        "inconclusive",
        "Hundreds of elementwise operators on few elements; without operators in the export nothing shows that.",
    ),
)
"""Regime of `workloads.train`, what profkit says of the export, and what the workload was built to do."""
COMMAND: Final = ("nsys", "--whole", "--also", "waits")
_META: Final = ("EXPORT_PRODUCT_NAME", "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION")
_PROCESS_BITS: Final = 24


def scrub_export(source: Path, target: Path) -> None:
    """Writes what profkit reads of an export to a new, gzipped one; raises `ValueError` if it names this machine."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.sqlite"
        with closing(sqlite3.connect(plain)) as new, closing(sqlite3.connect(source)) as old:
            _copy(old, new)
        data = plain.read_bytes()
    for secret in (socket.gethostname(), f"{Path.home()}/", f"{ROOT}/", "PATH=", "/tmp/"):  # noqa: S108 - looked for
        if secret.encode() in data and len(secret) > 2:
            raise ValueError(f"the export still holds {secret}")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(data, compresslevel=9, mtime=0))


def _copy(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    for table in ("EXPORT_META_DATA", "META_DATA_EXPORT", "NVTX_EVENTS", "OSRT_API", "StringIds"):
        for (made,) in old.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)):
            new.execute(made)
            rows = old.execute(f"SELECT * FROM {table}")  # noqa: S608 - one of ours
            names = [column[0] for column in rows.description]
            kept = [dict(zip(names, row, strict=True)) for row in rows]
            kept = _of_the_job(table, kept, new)
            marks = ", ".join("?" * len(names))
            new.executemany(f"INSERT INTO {table} VALUES ({marks})", [tuple(row.values()) for row in kept])  # noqa: S608
    new.commit()
    new.execute("VACUUM")


def _of_the_job(table: str, rows: list[dict[str, object]], new: sqlite3.Connection) -> list[dict[str, object]]:
    if table in {"EXPORT_META_DATA", "META_DATA_EXPORT"}:
        return [row for row in rows if row["name"] in _META]
    if table == "OSRT_API":
        low, high, thread = new.execute(
            "SELECT min(start), max(end), max(globalTid) FROM NVTX_EVENTS WHERE end IS NOT NULL"
        ).fetchone()
        return [
            {**row, "callchainId": 0}
            for row in rows
            if int(str(row["globalTid"])) >> _PROCESS_BITS == thread >> _PROCESS_BITS
            and int(str(row["end"])) > low
            and int(str(row["start"])) < high
        ]
    if table == "StringIds":
        used = new.execute("SELECT textId FROM NVTX_EVENTS UNION SELECT nameId FROM OSRT_API").fetchall()
        return [row for row in rows if (row["id"],) in used]
    return rows


def row_text(regime: str, bottleneck: str, truth: str, *, command: str, version: str, sha256: str) -> str:
    """A table of the manifest."""
    import torch

    return (
        f'\n[[export]]\nfolder = "nsys_{regime}_cpu"\nsha256 = "{sha256}"\ncommand = "{command}"\n'
        f'nsys = "{version}"\ntorch = "{torch.__version__}"\ndevice = "cpu"\ndate = {datetime.now(UTC).date()}\n'
        f'regime = "{regime}"\ntruth = "{truth}"\nbottleneck = "{bottleneck}"\n'
    )


def record(regime: str, target: Path) -> str:
    """Records a regime, writes the scrubbed export to `target`, and gives the command as a person types it."""
    job = ["-m", "workloads.train", "--regime", regime, "--device", "cpu"]
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "profkit", *COMMAND, "-o", folder, "--overwrite", "--", sys.executable, *job]
        subprocess.run(line, check=True, cwd=ROOT)
        scrub_export(Path(folder) / "profile.sqlite", target)
    return shlex.join(["profkit", *COMMAND, "--", "python", *job])


def main() -> int:
    """Records all cases; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "traces", help="folder to write to (traces/)")
    args = parser.parse_args()
    nsys = shutil.which("nsys")
    if nsys is None:
        parser.error('there is no nsys on PATH: export PATH="$(.ci/nsys):$PATH"')
    said = subprocess.run([nsys, "--version"], check=True, capture_output=True, text=True).stdout
    tables = []
    for regime, bottleneck, truth in CASES:
        target = args.out / f"nsys_{regime}_cpu" / FILE
        command = record(regime, target)
        sha256 = hashlib.sha256(target.read_bytes()).hexdigest()
        version = said.split()[-1].partition("-")[0]
        tables.append(row_text(regime, bottleneck, truth, command=command, version=version, sha256=sha256))
    (args.out / NAME).write_text(HEADER + "".join(tables), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
