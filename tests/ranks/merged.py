"""The traces of a job merged to one file, as tools that show them together write it."""

import gzip
import json
from pathlib import Path


def merged(folder: Path, into: Path, *, has_ranks: bool = True) -> Path:
    """Write one file with the events of all ranks in a folder, each rank's processes with numbers of their own."""
    events = []
    for number, path in enumerate(sorted(folder.glob("rank*.json.gz"))):
        document = json.loads(gzip.decompress(path.read_bytes()))
        for event in document["traceEvents"]:
            on_device = event["cat"] == "kernel"
            moved = {**event, "pid": event["pid"] + 10_000 * (number + 1)}
            if on_device:
                moved["args"] = {**event["args"], "device": number}
            if has_ranks:
                moved["args"] = {**moved["args"], "rank": number}
            events.append(moved)
        head = {key: value for key, value in document.items() if key not in ("traceEvents", "distributedInfo")}
    into.write_text(json.dumps({**head, "traceEvents": events}))
    return into
