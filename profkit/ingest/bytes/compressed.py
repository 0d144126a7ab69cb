"""Chunks of bytes to gzip, for files that profkit writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from isal import isal_zlib

_LEVEL: Final = 2
"""Of isal's 0 to 3. Measured on 62 MB of trace: 0.09 s for 6.0 MB; level 3 takes four times as long for 4 % less."""
_GZIP_WBITS: Final = 31


def gzipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks as one gzip member; the same bytes for the same chunks."""
    deflate = isal_zlib.compressobj(level=_LEVEL, wbits=_GZIP_WBITS)
    for chunk in chunks:
        packed: bytes = deflate.compress(chunk)
        if packed:
            yield packed
    yield deflate.flush()
