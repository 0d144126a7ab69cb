"""The names of one rank's intervals, each once."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import distinct_codes
from profkit.model.trace import I32, Trace
from profkit.plain import clean

MOST_CHARS: Final = 300
"""Chosen: names of templated kernels have a few hundred characters; what comes after tells none apart."""


class Names:
    """Numbers for names, given out as they are asked for; `texts` are the names in that order."""

    def __init__(self, trace: Trace) -> None:
        """Of the strings of one trace."""
        self._trace = trace
        self._of_code = np.full(len(trace.strings), -1, np.int32)
        self._of_text: dict[str, int] = {}

    @property
    def texts(self) -> tuple[str, ...]:
        """The names, by number."""
        return tuple(self._of_text)

    def of(self, text: str) -> int:
        """The number of a name, -1 for an empty one."""
        short = clean(text)[:MOST_CHARS]
        return self._of_text.setdefault(short, len(self._of_text)) if short else -1

    def of_codes(self, codes: NDArray[np.integer[Any]]) -> I32:
        """The numbers of the trace's strings with these codes, -1 for none; shape as given."""
        if codes.size == 0:
            return np.empty(0, np.int32)
        for code in distinct_codes(codes[codes >= 0]).tolist():
            if self._of_code[code] < 0:
                self._of_code[code] = self.of(self._trace.name(code))
        numbers: I32 = np.where(codes >= 0, self._of_code[np.maximum(codes, 0)], -1).astype(np.int32)
        return numbers
