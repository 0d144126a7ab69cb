"""Text for people: what a terminal only shows and does not obey, and names of files that tell them apart.

Runs in the traced process too, loaded by its path: standard library only, Python 3.9 syntax, nothing of profkit's.
"""

from __future__ import annotations

from collections.abc import Iterable


def clean(text: str) -> str:
    """Text on one line without control characters: names come from files, and a terminal obeys what it is sent."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in text)


def told_apart(paths: Iterable[str]) -> tuple[str, ...]:
    """The shortest end of each path that no other one has: its file's name, with as many folders as that takes.

    Equal paths have equal names, different ones different names.
    """
    given = [path.rstrip("/") or path for path in paths]
    parts = {path: path.split("/") for path in given}
    n_shown = dict.fromkeys(parts, 1)
    open_paths = list(parts)
    while open_paths:
        sharing: dict[tuple[str, ...], list[str]] = {}
        for path in open_paths:
            sharing.setdefault(tuple(parts[path][-n_shown[path] :]), []).append(path)
        open_paths = [path for alike in sharing.values() if len(alike) > 1 for path in alike]
        open_paths = [path for path in open_paths if n_shown[path] < len(parts[path])]
        for path in open_paths:
            n_shown[path] += 1
    return tuple("/".join(parts[path][-n_shown[path] :]) for path in given)
