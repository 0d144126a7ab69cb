"""Larger traces made by repeating a real one, in Kineto's exact text layout; run as a child process.

A copy of an event differs from its original in its timestamp, moved by whole microseconds (so decimals keep
their text), and in what must stay unique: correlation, External id, flow id, sequence numbers, step number.
All identifiers move by one common stride, because Kineto uses the correlation as the flow id and, in older
versions, as the External id.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from isal import igzip

BETWEEN = b"\n  },"
"""What ends one event and begins the next in every version of Kineto's own layout."""
GAP_US = 1_000
"""Time between the end of one copy and the start of the next; chosen: short beside a step."""
HEAD_BYTES = 1 << 20
"""Where a rank is looked for: Kineto writes distributedInfo before the events."""

_ONCE = re.compile(rb'"ph": "M"|"cat": "Trace"|"name": "(?:Iteration Start|Record Window End)')
_TIME = rb'"ts": (?P<time>[0-9]+)'
_STEP = rb"ProfilerStep#(?P<step>[0-9]+)"
_FLOW = rb'"ph": "[stf]",\s*"id": '
_KEYS = (
    rb'"(?:[Ee]xternal id|correlation|wait_on_cuda_event_record_corr_id|Sequence number|Seq|Ev Idx'
    rb'|Python (?:parent )?id)": '
)
_ID = rb"(?:%s|%s)(?P<id>[1-9][0-9]*)" % (_FLOW, _KEYS)  # 0 and -1 say "none" and stay
_NUMBER = re.compile(rb"|".join((_TIME, _STEP, _ID)))
_EXTENT = re.compile(rb'"ts": ([0-9]+)[.0-9]*(?:,\s*"dur": ([0-9]+))?')
_RANK = re.compile(rb'"rank":(\s*)([0-9]+)')


@dataclass(frozen=True, slots=True)
class KinetoText:
    """A trace file as text: `head`, the events as blocks without their closing brace, `foot`."""

    head: bytes
    blocks: list[bytes]
    foot: bytes


def split_text(text: bytes) -> KinetoText:
    """Give the parts of a trace in Kineto's own layout; raises ValueError for another layout."""
    array = re.search(rb'"traceEvents":\s*\[\s*?(?=\n  \{)', text)
    end = text.rfind(b"\n  }", 0, text.rfind(b"]"))
    if array is None or end < array.end():
        raise ValueError("not in Kineto's own layout: its traceEvents do not begin with a line '  {'")
    blocks = text[array.end() : end].split(BETWEEN)
    if not all(block.startswith(b"\n  {") for block in blocks):
        raise ValueError("not in Kineto's own layout: an event does not begin with a line '  {'")
    return KinetoText(text[: array.end()], blocks, text[end + len(b"\n  }") :])


class Template:
    """The repeated events as literal text between numbers, each with its step from copy to copy."""

    def __init__(self, text: bytes) -> None:
        found = list(_NUMBER.finditer(text))
        kinds = [str(match.lastgroup) for match in found]
        self._numbers = [int(match[kind]) for match, kind in zip(found, kinds, strict=True)]
        self.period_us = _extent_us(text) + GAP_US
        strides = {
            "time": self.period_us,
            "step": self._n_values(kinds, "step"),
            "id": self._n_values(kinds, "id"),
        }
        self._strides = [strides[kind] for kind in kinds]
        spans = (match.span(kind) for match, kind in zip(found, kinds, strict=True))
        edges = [0, *(edge for span in spans for edge in span), len(text)]
        self._literals = [text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]

    def _n_values(self, kinds: list[str], kind: str) -> int:
        numbers = [number for number, its_kind in zip(self._numbers, kinds, strict=True) if its_kind == kind]
        return max(numbers) - min(numbers) + 1 if numbers else 0

    def copy(self, index: int) -> bytes:
        """Give the text of copy `index`; copy 0 is the original."""
        pieces = [b""] * (2 * len(self._numbers) + 1)
        pieces[::2] = self._literals
        pieces[1::2] = [
            b"%d" % (number + index * stride) for number, stride in zip(self._numbers, self._strides, strict=True)
        ]
        return b"".join(pieces)


def _extent_us(text: bytes) -> int:
    """Give the time from the first start to the last end, in whole us, rounded up."""
    events = [(int(ts), int(dur or 0)) for ts, dur in _EXTENT.findall(text)]
    return max(ts + dur for ts, dur in events) + 2 - min(ts for ts, _ in events)


def repeated(text: bytes, n_bytes: int) -> Iterator[bytes]:
    """Give, in pieces, the trace whose events are repeated until it has at least `n_bytes` of text.

    Metadata and the profiler's own span stand once, as in a real capture; the span covers all copies.
    """
    parts = split_text(with_rank(text))
    is_once = [_ONCE.search(block) is not None for block in parts.blocks]
    n_leading = is_once.index(False)
    once = [block for block, flag in zip(parts.blocks[n_leading:], is_once[n_leading:], strict=True) if flag]
    many = [block for block, flag in zip(parts.blocks, is_once, strict=True) if not flag]
    template = Template(BETWEEN.join(many))
    copy_bytes = sum(map(len, many)) + len(BETWEEN) * len(many)
    n_copies = max(1, -(-(n_bytes - len(text) + copy_bytes) // copy_bytes))
    extra_us = (n_copies - 1) * template.period_us
    yield parts.head
    yield b"".join(block + BETWEEN for block in parts.blocks[:n_leading])
    for index in range(n_copies):
        yield BETWEEN if index else b""
        yield template.copy(index)
    yield b"".join(BETWEEN + _stretched(block, extra_us) for block in once)
    yield b"\n  }" + parts.foot


def _stretched(block: bytes, extra_us: int) -> bytes:
    """Give a once-only event so that it still covers, or ends, the longer capture."""
    if b'"cat": "Trace"' in block:
        return re.sub(rb'(?<="dur": )[0-9]+', lambda match: b"%d" % (int(match[0]) + extra_us), block)
    if b"Record Window End" in block:
        return re.sub(rb'(?<="ts": )[0-9]+', lambda match: b"%d" % (int(match[0]) + extra_us), block)
    return block


def with_rank(text: bytes) -> bytes:
    r"""Give the same trace with the rank where HTA looks for it: a line with `"rank":\s+N`."""
    match = _RANK.search(text, 0, HEAD_BYTES)
    if match is not None and match[1]:
        return text
    if match is not None:
        return text[: match.start()] + b'"rank": %s' % match[2] + text[match.end() :]
    info = b'"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},'
    return re.sub(rb'(?="traceEvents")', info + b"\n  ", text, count=1)


def read_text(path: Path) -> bytes:
    """Give the whole text of a plain or gzipped trace."""
    data = path.read_bytes()
    return igzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def main() -> None:
    """Write `destination` (.json.gz): the source repeated to `--bytes`, or just fitted for HTA without it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("destination", type=Path)
    parser.add_argument("--bytes", type=int, help="least size of the text")
    options = parser.parse_args()
    text = read_text(options.source)
    pieces = iter([with_rank(text)]) if options.bytes is None else repeated(text, options.bytes)
    part = options.destination.with_suffix(".part")
    with igzip.open(part, "wb") as file:
        for piece in pieces:
            file.write(piece)
    part.rename(options.destination)


if __name__ == "__main__":
    main()
