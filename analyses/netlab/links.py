"""How long the kernel had data under way on each link, by captures of `analyses.netlab.run` or of the lab itself.

    python -m analyses.netlab.links FOLDER...

Each folder is a capture whose name is a cell and, after a dot, a block; its links go to links.csv in the place of those
that a capture of the same name had there. Links that carry less than half of the largest one's bytes are left out, as
in a report.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any, Final

from profkit.findings.communication import BANDWIDTH
from profkit.ranks.measure.slow_links import host_links, links_between
from profkit.ranks.reduce.options import Options
from profkit.ranks.reduce.outcome import outcomes_of

TABLE: Final = Path(__file__).resolve().parent / "links.csv"
COLUMNS: Final = (
    "cell",
    "block",
    "sender",
    "receiver",
    "mbytes",
    "busy_ms",
    "busy_share",
    "mbit_per_s",
    "resent_share",
)


def links_of(folder: Path) -> list[dict[str, Any]]:
    """The links between the hosts of a capture, the busiest first."""
    cell, _, block = folder.name.partition(".")
    paths = sorted(folder.glob("rank*.pt.trace.json.gz"))
    summaries = [outcome.summary for path in paths for outcome in outcomes_of(str(path), Options())]
    links = host_links(summaries, links_between(summaries))
    most = max((link.sent_bytes for link in links), default=0)
    return [
        {
            "cell": cell,
            "block": block,
            "sender": link.sender_host,
            "receiver": link.receiver_host,
            "mbytes": round(link.sent_bytes / 1e6, 1),
            "busy_ms": round(link.busy_ns / 1e6),
            "busy_share": round(link.busy_fraction, 3),
            "mbit_per_s": round(8 * link.bytes_per_s / 1e6),
            "resent_share": round(link.resent_bytes / link.sent_bytes, 5),
        }
        for link in links
        if link.sent_bytes >= BANDWIDTH.limit("alike") * most > 0
    ]


def main() -> None:
    """Add the links of the captures to the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    found = [row for folder in parser.parse_args().folders for row in links_of(folder)]
    known = {(row["cell"], row["block"]) for row in found}
    kept: list[dict[str, Any]] = []
    if TABLE.exists():
        with TABLE.open(newline="") as file:
            kept = [row for row in csv.DictReader(file) if (row["cell"], row["block"]) not in known]
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(sorted([*kept, *found], key=lambda row: (row["cell"], row["block"])))


if __name__ == "__main__":
    main()
