"""Whether a report holds what its traces give: two documents as plain values, told apart place by place."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import PurePath
from typing import Any, Final

import msgspec

from profkit.errors import TraceFormatError

NOT_COMPARED: Final = frozenset({"source", "sources", "command", "measure", "profkit_version"})
"""Keys whose values depend on who runs profkit, and where: paths, and commands to paste."""
_DIGITS: Final = 1e-9
"""The relative difference up to which two fractions are one: another build of numpy adds up in another order. Chosen.
Integers, all times among them, are compared exactly."""
_ZERO: Final = 1e-12
"""The same for what is left where nearly all is taken from 1."""
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NUMERAL: Final = re.compile(r"\d[\d,]*(?:\.\d+)?")
_SHORTEST_NAME: Final = 4  # characters of a file's name that may stand in a sentence; a shorter one may be a word of it


class Absent(msgspec.Struct, frozen=True):
    """What stands for a value that one of two documents has not."""


ABSENT: Final = Absent()


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One place in which two documents differ."""

    path: str
    """As `jq` takes it: `.ranks[0].steps.mean_ns`."""
    said: Any
    """What the report has there, `ABSENT` for nothing."""
    found: Any
    """What the traces give."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A report beside what was recomputed; `n_numbers` and `n_others` (texts, flags) were looked at."""

    n_numbers: int
    n_others: int
    differences: tuple[Difference, ...]
    version: str
    """The profkit that wrote the report, as it says."""
    is_same_version: bool
    """Where False, of sentences only the numbers are compared, and fields that one of the two lacks are left out."""


def read_document(
    text: str | bytes, name: str, *schemas: str, use: str = "can be recomputed from traces"
) -> dict[str, Any]:
    """The plain values of a document of these schemas; raises TraceFormatError for any other, saying which it is.

    A key that stands twice, and numbers that JSON has not (NaN), are refused: another reader may take the other one.
    """
    try:
        document = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise TraceFormatError(f"{name} is no JSON report: {reason}", hint=_HOW) from None
    told = document.get("schema") if isinstance(document, dict) else None
    if told in schemas:
        return dict(document)
    if not isinstance(told, str):
        raise TraceFormatError(f"{name} is no report of profkit: it names no schema", hint=_HOW)
    for kind, _, version in (schema.rpartition("/") for schema in schemas):
        if told.rpartition("/")[0] == kind:
            said = f"{name} has schema {told}, this profkit reads version {version}"
            raise TraceFormatError(said, hint="use the profkit that wrote it")
    raise TraceFormatError(f"{name} has schema {told}; {' or '.join(schemas)} {use}", hint=_HOW)


_HOW: Final = "profkit triage TRACE -f json -o report.json writes one"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place]))
        raise ValueError(f"an object has {twice!r} twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def checked(said: Mapping[str, Any], found: Mapping[str, Any]) -> Checked:
    """The report `said` beside `found`, the document that its traces give; differences in the order of `said`."""
    version = str(said.get("profkit_version", "?"))
    walk = _Walk(
        is_same_version=version == found.get("profkit_version"),
        names=_Names(sources=_sources(said)),
        found_names=_Names(sources=_sources(found)),
    )
    differences = tuple(walk.between(said, found, ""))
    return Checked(
        n_numbers=walk.n_numbers,
        n_others=walk.n_others,
        differences=differences,
        version=version,
        is_same_version=walk.is_same_version,
    )


def _sources(document: Mapping[str, Any]) -> list[str]:
    """The names of the traces that a report is of: those of its ranks, or of the sides of a comparison."""
    ranks = document.get("ranks")
    found = [str(rank.get("source", "")) for rank in (ranks if isinstance(ranks, list) else []) if _is_object(rank)]
    for side in map(document.get, ("baseline", "candidate")):
        listed = side.get("sources") if isinstance(side, Mapping) else None
        found += map(str, listed if isinstance(listed, list) else [])
    return found


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


class _Names(msgspec.Struct, kw_only=True, dict=True):
    """The names of traces in a sentence and what stands for them: the same trace may lie elsewhere."""

    sources: list[str]

    @cached_property
    def _instead(self) -> dict[str, str]:
        return {
            name: f"(trace {place})"
            for place, source in enumerate(self.sources)
            for name in (PurePath(source).name, source)
            if len(name) >= _SHORTEST_NAME
        }

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self._instead, key=len, reverse=True)
        return re.compile(rf"(?<![\w./-])(?:{'|'.join(map(re.escape, longest_first)) or '(?!)'})(?!\w)")

    def out_of(self, text: str) -> str:
        """The text with each trace by its number."""
        return self._pattern.sub(lambda match: self._instead[match[0]], text)


class _Walk(msgspec.Struct, kw_only=True):
    """Goes through two documents at once and counts what it looks at."""

    is_same_version: bool
    names: _Names
    found_names: _Names
    n_numbers: int = 0
    n_others: int = 0

    def between(self, said: Any, found: Any, path: str) -> Iterator[Difference]:
        """The differences of two values at one place."""
        if isinstance(said, Mapping) and isinstance(found, Mapping):
            for key in (*said, *(key for key in found if key not in said)):
                if key not in NOT_COMPARED:
                    yield from self._one_of(said.get(key, ABSENT), found.get(key, ABSENT), f"{path}{_step(key)}")
        elif isinstance(said, list) and isinstance(found, list):
            for place in range(max(len(said), len(found))):
                first = said[place] if place < len(said) else ABSENT
                second = found[place] if place < len(found) else ABSENT
                yield from self._one_of(first, second, f"{path or '.'}[{place}]")
        else:
            if _is_number(found):
                self.n_numbers += 1
            elif not isinstance(found, (Mapping, list)):
                self.n_others += 1
            if not self._are_equal(said, found):
                yield Difference(path=path or ".", said=said, found=found)

    def _one_of(self, said: Any, found: Any, path: str) -> Iterator[Difference]:
        """As `between`; a field that one version of profkit has and the other has not is no difference."""
        if (said is ABSENT or found is ABSENT) and not self.is_same_version and not path.endswith("]"):
            return
        yield from self.between(said, found, path)

    def _are_equal(self, said: Any, found: Any) -> bool:
        if isinstance(said, str) and isinstance(found, str) and said != found:
            told, given = self.names.out_of(said), self.found_names.out_of(found)
            return told == given or (not self.is_same_version and _NUMERAL.findall(told) == _NUMERAL.findall(given))
        if _is_number(said) and _is_number(found):
            return _is_one_number(said, found)
        return type(said) is type(found) and bool(said == found)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_one_number(said: float, found: float) -> bool:
    if isinstance(said, int) and isinstance(found, int):
        return said == found
    try:
        return math.isclose(said, found, rel_tol=_DIGITS, abs_tol=_ZERO)
    except OverflowError:  # an integer beyond all floats
        return False


def _step(key: str) -> str:
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{json.dumps(key)}]"
