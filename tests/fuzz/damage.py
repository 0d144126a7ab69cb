"""Damage to bytes; places are shares of the length, so that they mean something in whatever was made smaller."""

import random
from dataclasses import dataclass

TOKENS = [
    *(token.encode() for token in '"\\{}[],: \n0'),
    *(b"null", b"NaN", b"1e999", b"-1", b'"\\ud800"', b'"x":[[]],', b'"ts":1,', b'"traceEvents":[', b"9" * 5000),
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1b[31m", b"\xc3", b"\xed\xa0\x80", b"\x1f\x8b\x08\x00", b"[" * 3000),
]


@dataclass(frozen=True)
class Damage:
    """One thing done to bytes, at a share `at` of their length, `n` bytes long."""

    what: str
    at: float = 0.0
    n: int = 1
    token: bytes = b""

    def __call__(self, data: bytes) -> bytes:
        place = int(self.at * len(data))
        if self.what == "flip":
            return data[:place] + bytes([data[place] ^ (1 << self.n % 8)]) + data[place + 1 :] if data else data
        if self.what == "cut":
            return data[:place]
        if self.what == "drop":
            return data[:place] + data[place + self.n :]
        if self.what == "repeat":
            return data[: place + self.n] + data[place:]
        if self.what == "insert":
            return data[:place] + self.token + data[place:]
        if self.what == "overwrite":
            return data[:place] + self.token + data[place + len(self.token) :]
        if self.what == "bom":
            return b"\xef\xbb\xbf" + data
        if self.what == "latin1":
            return data.decode("utf-8", "replace").encode("latin-1", "replace")
        if self.what == "utf16":
            return data.decode("utf-8", "replace").encode("utf-16")
        if self.what == "splice":
            other = int(self.n / 1000 * len(data))
            return data[:place] + data[other:]
        if self.what == "crlf":
            return data.replace(b"\n", b"\r\n")
        raise ValueError(self.what)


def drawn(rng: random.Random) -> Damage:
    """Some damage."""
    what = rng.choice(
        [
            *("flip", "flip", "cut", "drop", "repeat", "insert", "insert", "overwrite", "bom", "latin1", "utf16"),
            *("splice", "crlf"),
        ]
    )
    n = rng.randrange(1000) if what == "splice" else rng.choice([1, 1, 2, 5, 30, 300])
    at = rng.choice([rng.random(), rng.random(), rng.random() / 50, 1 - rng.random() / 50])
    return Damage(what=what, at=at, n=n, token=rng.choice(TOKENS) if what in ("insert", "overwrite") else b"")
