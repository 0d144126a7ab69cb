"""The floor: gunzip plus typed decode of a whole trace on one core, and nothing else; run as a child process.

With `--gunzip` before the file: gunzip alone, in pieces that are forgotten, which no reader of that file can avoid.

No streaming, no columns, no analysis: the least that a reader built on isal and msgspec does per byte. The
whole text and all events are in memory at once, so only its time is a bound; its memory is not.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import msgspec
from isal import isal_zlib

PACKED_BYTES = 1 << 16
PLAIN_BYTES = 1 << 20


class Args(msgspec.Struct, gc=False):
    """The event arguments that tie host and device together."""

    external_id: int | str | None = msgspec.field(name="External id", default=None)
    correlation: int | str | None = None
    stream: int | str | None = None
    device: int | str | None = None
    bytes: int | float | str | None = None


class Event(msgspec.Struct, gc=False):
    """One element of `traceEvents`; `ts` and `dur` in us."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    args: Args | None = None


class Document(msgspec.Struct):
    """A trace file, of which only the events are read."""

    events: list[Event] = msgspec.field(name="traceEvents")


def gunzip(data: bytes) -> bytes:
    """Give the text of a gzip file of one member, in one piece of memory.

    The size that the file ends with (RFC 1952) is the first buffer: grown from nothing, as `igzip.decompress`
    does, 1 GB takes 5 s instead of 0.8 s.
    """
    size_bytes = int.from_bytes(data[-4:], "little")
    text = isal_zlib.decompress(data, wbits=31, bufsize=size_bytes)
    if len(text) % 2**32 != size_bytes:
        raise SystemExit("floor: not a gzip file of one member")
    return text


def gunzip_alone(path: Path) -> int:
    """Give the size of the text of a gzip file of one member, of which no more than a piece is ever held."""
    inflate = isal_zlib.decompressobj(wbits=31)
    n_bytes = 0
    with path.open("rb") as file:
        while pending := file.read(PACKED_BYTES):
            while pending:
                n_bytes += len(inflate.decompress(pending, PLAIN_BYTES))
                pending = inflate.unconsumed_tail
    return n_bytes


def main() -> None:
    """Decode the file named by the only argument and print sizes and times as one JSON line."""
    start_s = time.perf_counter()
    if sys.argv[1] == "--gunzip":
        print(json.dumps({"n_bytes": gunzip_alone(Path(sys.argv[2])), "gunzip_s": time.perf_counter() - start_s}))
        return
    data = Path(sys.argv[1]).read_bytes()
    text = gunzip(data) if data[:2] == b"\x1f\x8b" else data
    gunzipped_s = time.perf_counter()
    document = msgspec.json.Decoder(Document).decode(text)
    decoded_s = time.perf_counter()
    result = {
        "gunzip_s": gunzipped_s - start_s,
        "decode_s": decoded_s - gunzipped_s,
        "n_bytes": len(text),
        "n_events": len(document.events),
    }
    print(json.dumps(result), flush=True)
    os._exit(0)  # freeing millions of events one by one is not part of the floor


if __name__ == "__main__":
    main()
