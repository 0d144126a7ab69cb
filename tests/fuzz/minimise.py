"""Delta debugging: an input made smaller as long as one fault of it stays, file by file, event by event, letter by letter."""

import gzip
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from tests.fuzz.documents import Blob, Body, Case, File, Json, Lines, Raw, Sql

Item = TypeVar("Item")
Path = tuple[Any, ...]


class OutOfTime(Exception):  # noqa: N818 - no error: what is left is the result
    """The time for making smaller is over."""


class Shrinker:
    """Makes a case smaller while `shows(case)` holds, for at most `limit_s`."""

    def __init__(self, case: Case, shows: Callable[[Case], bool], *, limit_s: float) -> None:
        self.case = case
        self.n_tries = 0
        self._shows = shows
        self._until = time.monotonic() + limit_s

    def run(self) -> Case:
        """Give the smallest case found."""
        with suppress(OutOfTime):
            size = -1
            while size != (size := _size(self.case)):
                for name in [*self.case.files]:
                    self._without(name)
                for name in [*self.case.files]:
                    self._unpacked(name)
                    self._body(name)
        return self.case

    def keeps(self, case: Case) -> bool:
        """Whether the fault is still there; if so, this is the case from now on."""
        if time.monotonic() > self._until:
            raise OutOfTime
        self.n_tries += 1
        if not self._shows(case):
            return False
        self.case = case
        return True

    def _without(self, name: str) -> None:
        if len(self.case.files) > 1:
            files = {other: file for other, file in self.case.files.items() if other != name}
            folder = name.partition("/")[0]
            is_named = not any(other.partition("/")[0] == folder for other in files)
            commands = [[word for word in args if not is_named or word != folder] for args in self.case.commands]
            self.keeps(self.case.but(files=files, commands=commands))

    def _unpacked(self, name: str) -> None:
        file = self.case.files[name]
        for part in ("inner", "outer"):
            for damage in getattr(file, part):
                kept = [one for one in getattr(self.case.files[name], part) if one is not damage]
                self._with(name, replace(self.case.files[name], **{part: kept}))
        file = self.case.files[name]
        if file.packing:
            self._with(name, replace(file, packing="gz")) or self._with(name, replace(file, packing=""))
            self._with(name, replace(self.case.files[name], packing=""))
        file = self.case.files[name]
        if file.inner and not file.outer:
            data = replace(file, packing="").data()
            self._with(name, File(body=Blob(data), packing=file.packing)) or self._with(name, File(body=Blob(data)))
        elif file.outer:
            data = file.data()
            with suppress(OSError, EOFError, ValueError):
                data = gzip.decompress(data)
            self._with(name, File(body=Blob(data))) or self._with(name, File(body=Blob(file.data())))

    def _with(self, name: str, file: File) -> bool:
        return self.keeps(self.case.but(files={**self.case.files, name: file}))

    def _body(self, name: str) -> None:
        body = self.case.files[name].body
        if isinstance(body, Json):
            self._tree(name, body)
        elif isinstance(body, Lines):
            self._list(name, body.lines, lambda lines: replace(body, lines=lines))
            self._letters(name)
        elif isinstance(body, Sql):
            self._list(name, body.statements, lambda found: Sql(found, wal=body.wal))
            self._statements(name)
        elif isinstance(body, Blob):
            data = self._list(
                name,
                [body.data[at : at + 64] for at in range(0, len(body.data), 64)],
                lambda parts: Blob(b"".join(parts)),
            )
            self._list(name, [bytes([one]) for one in b"".join(data)], lambda parts: Blob(b"".join(parts)))

    def _bodied(self, name: str, body: Body) -> bool:
        return self._with(name, replace(self.case.files[name], body=body))

    def _list(self, name: str, items: Sequence[Item], body_of: Callable[[list[Item]], Body]) -> list[Item]:
        return reduced(list(items), lambda kept: self._bodied(name, body_of(kept)))

    def _letters(self, name: str) -> None:
        for place in range(len(self._lines(name))):
            line = self._lines(name)[place]
            if len(line) > 1:

                def with_line(text: str, place: int = place) -> bool:
                    lines = self._lines(name)
                    return self._bodied(
                        name, replace(self.case.files[name].body, lines=[*lines[:place], text, *lines[place + 1 :]])
                    )  # type: ignore[type-var]

                reduced(_pieces(line), lambda kept: with_line("".join(kept)))

    def _lines(self, name: str) -> list[str]:
        body = self.case.files[name].body
        return body.lines if isinstance(body, Lines) else []

    def _statements(self, name: str) -> None:
        body = self.case.files[name].body
        for place in range(len(body.statements)):
            text, cells = self._sql(name).statements[place]
            for column, cell in enumerate(cells):
                for simple in simpler(cell):
                    now = self._sql(name)
                    row = now.statements[place][1]
                    changed = (text, (*row[:column], simple, *row[column + 1 :]))
                    if self._bodied(
                        name, replace(now, statements=[*now.statements[:place], changed, *now.statements[place + 1 :]])
                    ):
                        break

    def _sql(self, name: str) -> Sql:
        return self.case.files[name].body

    def _tree(self, name: str, body: Json) -> None:
        for layout in ("kineto", "compact"):
            if body.layout == layout or self._bodied(name, replace(body, layout=layout)):
                break  # the first is the best: to and fro between two never ended

        def value() -> Any:
            found = self.case.files[name].body
            return found.value if isinstance(found, Json) else None

        def keeps(new: Any) -> bool:
            found = self.case.files[name].body
            return isinstance(found, Json) and self._bodied(name, replace(found, value=new))

        for path in [*containers(value())]:
            item = at(value(), path)
            if isinstance(item, list) and item:
                reduced(item, lambda kept, path=path: keeps(put(value(), path, kept)))  # type: ignore[misc]
            elif isinstance(item, dict) and item:
                reduced([*item.items()], lambda kept, path=path: keeps(put(value(), path, dict(kept))))  # type: ignore[misc]
        for path in [*leaves(value())]:
            for simple in simpler(at(value(), path)):
                if keeps(put(value(), path, simple)):
                    break
            item = at(value(), path)
            if isinstance(item, str) and len(item) > 1:
                reduced(_pieces(item), lambda kept, path=path: keeps(put(value(), path, "".join(kept))))  # type: ignore[misc]


def _pieces(text: str) -> list[str]:
    size = max(len(text) // 64, 1)
    return [text[place : place + size] for place in range(0, len(text), size)]


def reduced(items: list[Item], keeps: Callable[[list[Item]], bool]) -> list[Item]:
    """The items without what can be left out, larger parts first."""
    size = len(items)
    while size >= 1:
        place = 0
        while place < len(items):
            shorter = items[:place] + items[place + size :]
            if keeps(shorter):
                items = shorter
            else:
                place += size
        size //= 2
    return items


def simpler(value: Any) -> Iterator[Any]:
    """Values to try instead, the simplest first."""
    if isinstance(value, (dict, list, bool)) or value is None or value in ("", 0):
        return
    if isinstance(value, (int, float)):
        yield from (0, 1)
        if value == value and abs(value) < 1e18 and value != int(value):  # noqa: PLR0124 - NaN
            yield int(value)
    elif isinstance(value, (str, bytes, Raw)):
        yield ""


def at(value: Any, path: Path) -> Any:
    """What lies at a path; None where there is nothing any more."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def put(value: Any, path: Path, new: Any) -> Any:
    """A copy of the tree with something else at a path."""
    if not path:
        return new
    step, *rest = path
    if isinstance(value, dict) and step in value:
        return {**value, step: put(value[step], tuple(rest), new)}
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return [*value[:step], put(value[step], tuple(rest), new), *value[step + 1 :]]
    return value


def containers(value: Any) -> Iterator[Path]:
    """Paths of all lists and dictionaries, as the tree is when asked: outer ones first, long ones before short ones."""
    level: list[tuple[Path, Any]] = [((), value)]
    while level:
        found = [(path, item) for path, item in level if isinstance(item, (dict, list))]
        for path, _ in sorted(found, key=lambda pair: -len(pair[1])):
            yield path
        level = [((*path, key), item) for path, box in found for key, item in _items(box)]


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Paths of all that is no list and no dictionary."""
    if isinstance(value, (dict, list)):
        for key, item in _items(value):
            yield from leaves(item, (*path, key))
    else:
        yield path


def _items(box: Any) -> list[tuple[Any, Any]]:
    return [*box.items()] if isinstance(box, dict) else [*enumerate(box)]


def _size(case: Case) -> int:
    return sum(len(file.data()) for file in case.files.values())
