"""Zstd as gzip: bombs, cuts and damage are one line each; where no decoder is installed, that is (`test_kineto`)."""

import importlib
import random
from pathlib import Path

import pytest

from profkit.errors import ProfkitError, TraceFormatError, TruncatedTraceError
from profkit.ingest.bytes import bytesource
from profkit.ingest.kineto.reader import read_trace
from profkit.testing import span, to_json


def _decoder():
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


zstd = _decoder()
needs_zstd = pytest.mark.skipif(zstd is None, reason="no zstd decoder is installed")
WHOLE = to_json(
    [span(f"op {number * 7919 % 9973}", 10**9 + 2000 * number, 10**9 + 2000 * number + 999) for number in range(4000)]
)


class FakeZstdError(Exception):
    """As ZstdError is: neither an OSError nor a ValueError."""


class FakeFile:
    def __init__(self, raw):
        self.parts = [b'{"traceEvents": [' + b",".join([b'{"ph":"X","name":"a","ts":1,"dur":1,"pid":1,"tid":1}'] * 3)]

    def read1(self, size):
        if not self.parts:
            raise FakeZstdError("Data corruption detected")
        return self.parts.pop()


def test_damage_is_one_line_whatever_the_decoder_calls_it(tmp_path, monkeypatch):
    from types import SimpleNamespace

    fake = SimpleNamespace(open=lambda raw, _: FakeFile(raw), ZstdError=FakeZstdError)
    monkeypatch.setattr(bytesource.importlib, "import_module", lambda _: fake)
    path = tmp_path / "x.json.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + b"damaged")
    with pytest.raises(TraceFormatError, match="broken compressed data"):
        list(bytesource.read_chunks(path, source="x", chunk_bytes=10**6))
    (before,) = bytesource.read_chunks(path, source="x", chunk_bytes=10**6, lenient=True)
    assert before.startswith(b'{"traceEvents"')


@needs_zstd
def test_a_cut_says_where_and_lenient_keeps_what_came_before(tmp_path):
    data = zstd.compress(WHOLE)
    path = tmp_path / "x.json.zst"
    path.write_bytes(data[: len(data) * 3 // 4])
    with pytest.raises(TruncatedTraceError, match="cut at byte"):
        read_trace(str(path))
    assert 0 < read_trace(str(path), lenient=True).meta.n_events < 4000


@needs_zstd
def test_a_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(bytesource, "FREE_EXPANSION_BYTES", 10**6)
    monkeypatch.setattr(bytesource, "MAX_EXPANSION", 20)
    path = tmp_path / "x.json.zst"
    path.write_bytes(zstd.compress(to_json([span("op", 10**9, 10**9 + 1)] * 30_000)))
    with pytest.raises(TraceFormatError, match="expands to more than"):
        read_trace(str(path))


@needs_zstd
def test_a_frame_that_asks_for_two_gigabytes_is_refused(tmp_path):
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 31})
    path = tmp_path / "x.json.zst"
    path.write_bytes(compressor.compress(WHOLE) + compressor.flush())
    with pytest.raises(TraceFormatError, match="too much memory"):
        read_trace(str(path))


@needs_zstd
def test_any_damage_gives_a_trace_or_one_line(tmp_path: Path):
    whole = zstd.compress(WHOLE)
    path = tmp_path / "x.json.zst"
    chance = random.Random(3)  # noqa: S311
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 3, 20))):
            data[chance.randrange(4, len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.randrange(5, len(data))] if chance.random() < 0.3 else data)
        for is_lenient in (False, True):
            try:
                read_trace(str(path), lenient=is_lenient)
            except ProfkitError as error:
                assert error.exit_code == 3  # noqa: PT017
                assert "\n" not in error.message  # noqa: PT017
