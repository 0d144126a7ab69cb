"""`make bench-nsys`: reading an nsys export of 1 GB beside a bare SELECT of the same columns, and a whole triage of it.

The export is a real one whose event rows are doubled until the file is large enough, each copy later than the last and
with correlations of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench import contest, table
from bench.contest import Contender
from bench.measure import REPO_ROOT, say
from bench.table import Ratio

SHARED: Final = REPO_ROOT.parent / "shared" / "data" / "nsys"
"""Real exports beside the repository; may be absent."""
READING, BARE, TRIAGE = "reading", "bare SELECT", "profkit triage"
RATIOS: Final = (
    Ratio(over=READING, under=BARE, quantity=table.CPU, most=1.5),
    Ratio(over=READING, under=BARE, quantity=table.WALL, most=1.5),
)
PEAK_MB: Final = 600
"""The peak memory wanted of a whole triage."""
_PAGE_QUERY: Final = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"


def main() -> int:
    """Build the export, run the contest and print it; the exit code is 1 where a contender failed."""
    options = _options()
    with _folder(options.out) as folder:
        small, export = folder / "export-small.sqlite", folder / f"export-{int(options.gb * 1000)}MB.sqlite"
        if not export.exists():
            _unpack(options.source or _source(), small)
            grow(small, export, int(options.gb * 1e9))
        child = (sys.executable, "-m", "bench.nsys_child")
        chosen = [
            Contender(name=BARE, command=(*child, "bare", export, small)),
            Contender(name=READING, command=(*child, "read", export)),
            contest.profkit(TRIAGE, export),
        ]
        runs = contest.run_in_turns(chosen, options.repeats)
        print(f"{export.name}: {export.stat().st_size / 1e6:.0f} MB on disk\n\n{table.format_runs(runs)}\n")
    print(table.format_ratios(RATIOS, runs))
    if runs[TRIAGE]:
        peak_mb = max(usage.peak_bytes for usage in runs[TRIAGE]) / 1e6
        print(f"{TRIAGE}, highest peak MB {peak_mb:>32.0f}{table.format_wanted(peak_mb, most=PEAK_MB)}")
    return 0 if all(runs.values()) else 1


def grow(source: Path, destination: Path, n_bytes: int) -> None:
    """Write a copy of an export whose events are repeated until it holds `n_bytes`."""
    say(f"writing {destination.name} from {source.name} ...")
    partial = Path(shutil.copyfile(source, destination.with_suffix(".part")))
    with contextlib.closing(sqlite3.connect(partial, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        tables = _event_tables(database)
        last_ns = max(database.execute(f'SELECT max("start") FROM "{name}"').fetchone()[0] or 0 for name in tables)  # noqa: S608
        first_ns = min(database.execute(f'SELECT min("start") FROM "{name}"').fetchone()[0] or 0 for name in tables)  # noqa: S608
        length_ns, stride = last_ns - first_ns + 1_000_000, 10_000_000
        while (size := database.execute(_PAGE_QUERY).fetchone()[0]) < n_bytes:
            part = min(n_bytes / size - 1, 1)  # the last round copies no more than is missing
            for name, columns in tables.items():
                moved = ", ".join(_moved(column, length_ns, stride) for column in columns)
                names = ", ".join(f'"{column}"' for column in columns)
                n_rows = int(part * database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]) + 1  # noqa: S608
                database.execute(f'INSERT INTO "{name}" ({names}) SELECT {moved} FROM "{name}" LIMIT {n_rows}')  # noqa: S608
            length_ns, stride = 2 * length_ns, 2 * stride
    partial.replace(destination)


def _unpack(source: Path, destination: Path) -> None:
    with gzip.open(source, "rb") as packed, destination.open("wb") as plain:
        shutil.copyfileobj(packed, plain)


def _event_tables(database: sqlite3.Connection) -> dict[str, list[str]]:
    """Give the tables of events with their columns, but such as SQLite numbers itself."""
    found = {}
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        rows = database.execute(f'PRAGMA table_info("{name}")').fetchall()
        columns = [column for _, column, _, _, _, is_key in rows if not is_key]
        if "start" in columns and database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]:  # noqa: S608
            found[name] = columns
    return found


def _moved(column: str, length_ns: int, stride: int) -> str:
    """Give a column of a later copy: NULL stays NULL."""
    added = {"start": length_ns, "end": length_ns, "correlationId": stride}.get(column)
    return f'"{column}"' if added is None else f'"{column}" + {added}'


def _source() -> Path:
    found = sorted(SHARED.glob("*torchrun_train_before*.sqlite.gz"))
    if not found:
        raise SystemExit("bench: no export at hand to repeat; name one with --source")
    return found[0]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.nsys", description=__doc__)
    parser.add_argument("--gb", type=float, default=1.0, help="least size of the export, in 10^9 bytes (1)")
    parser.add_argument("--source", type=Path, help="the .sqlite.gz to repeat; default: a real one")
    parser.add_argument("--out", type=Path, help="keep the export in this folder and use it again")
    parser.add_argument("--repeats", type=int, default=2, help="rounds, each contender once in each (2)")
    return parser.parse_args()


@contextlib.contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="profkit-bench-") as scratch:
        yield Path(scratch)


if __name__ == "__main__":
    sys.exit(main())
