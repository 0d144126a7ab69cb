"""How much of the batches is padding: looked at in the first batches that a loader gives, outside recorded steps.

Of tensors on the CPU alone, so nothing waits for a device. Standard library and torch only, Python 3.9 syntax.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from ..beside import redact

_BATCHES: Final = 16
_LONGEST_NAME: Final = 40
_LEAST_LENGTH: Final = 8
"""Of a sequence; chosen: rows of fewer numbers are features."""
_MOST_VALUES: Final = 1 << 22
"""Of a tensor that is looked at: more take longer than 5 ms (one byte-wide compare of 4 M values)."""


class Padding:
    """Counts positions of sequences that are padding; `told` has them as plain values."""

    def __init__(self) -> None:
        self._n = self._all = self._padded = 0
        self._lengths: set[int] = set()
        self._longest = 0
        self._of = ""

    def see(self, batch: Any) -> None:
        """A loader has given this batch; nothing happens after the first ones."""
        if self._n >= _BATCHES:
            return
        self._n += 1
        with suppress(Exception):  # the script's own types may be of any kind
            found = _counted(batch)
            if found is not None:
                name, padded, n_rows, length, longest = found
                self._of = redact().redacted_text(name)[:_LONGEST_NAME]  # cut, a secret is not known any more
                self._all += n_rows * length
                self._padded += padded
                self._lengths.add(length)
                self._longest = max(self._longest, longest)

    def told(self) -> dict[str, Any] | None:
        """None where no batch has sequences with padding at their ends."""
        if not self._padded:
            return None
        told = {"of": self._of, "n_batches": self._n, "n_padded": self._padded, "n_all": self._all}
        return {**told, "lengths": sorted(self._lengths)[:_BATCHES], "longest": self._longest}


def _counted(batch: Any) -> tuple[str, int, int, int, int] | None:
    """Name, padded positions, rows, length, and the longest row of the first tensor that is padded sequences."""
    for name, one in _tensors(batch):
        if one.ndim != 2 or one.is_floating_point() or one.is_complex() or not one.shape[0] >= 2:
            continue
        if one.shape[1] < _LEAST_LENGTH or one.numel() > _MOST_VALUES or one.device.type != "cpu":
            continue
        rows = one.detach().numpy()
        end = rows[:, -1:]
        ends = rows[(end == rows[:, -2:-1]).ravel(), -1]
        if not len(ends) or (ends != ends[0]).any():
            continue
        is_pad = rows == ends[0]
        behind = is_pad[:, ::-1].cumprod(axis=1, dtype="int8").sum(axis=1, dtype="int64")
        if int(is_pad.sum()) != int(behind.sum()) or int(behind.max()) >= one.shape[1]:
            continue  # it stands inside rows as well, or a whole row is of it: a value like others
        n_rows, length = int(one.shape[0]), int(one.shape[1])
        return name, int(behind.sum()), n_rows, length, length - int(behind.min())
    return None


def _tensors(batch: Any, name: str = "", depth: int = 0) -> Iterable[tuple[str, Any]]:
    """The tensors of a batch by their names, a mask of attention first."""
    if isinstance(batch, Mapping):
        named = sorted(batch.items(), key=lambda item: "mask" not in str(item[0]))
    elif isinstance(batch, (tuple, list)) and len(batch) <= _BATCHES:
        named = [("", one) for one in batch]
    else:
        named = []
        if hasattr(batch, "ndim") and hasattr(batch, "is_floating_point"):
            yield name, batch
    if depth < 3:
        for key, one in named:
            yield from _tensors(one, str(key) or name, depth + 1)
