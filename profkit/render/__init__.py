"""A document of `profkit.model` to text: one folder per format, in it one file per document, with `render` in it.

In: a document, and how it is to be shown. Out: text. Begin with `renderer_for`. A renderer formats and decides
nothing, and is imported when it is asked for; the sentences that formats share stand in `words/`.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import PurePath
from typing import Any, Final, Protocol

from profkit.errors import UsageError

DOCUMENTS: Final = (
    "triage", "where", "compare", "compare_kernels", "scaling", "ladder", "kernels", "bench", "probe", "trial",
)  # fmt: skip
"""What profkit prints. A format renders those for which its folder has a file."""
_NO_FORMATS: Final = ("words", "notebook")
_DEFAULT: Final = "terminal"


class Renderer(Protocol):
    """A document as text. What a format has no use for, such as colour in JSON, it ignores."""

    def __call__(
        self,
        document: Any,
        /,
        *,
        width: int | None = None,
        color: bool | None = None,
        verbose: bool = False,
        with_paths: bool = False,
    ) -> str:
        """Text that ends with a line break.

        `width`: columns to keep to, by default the terminal's. `color`: by default as the terminal and `NO_COLOR` have
        it. `verbose`: everything, not only what everyone needs. `with_paths`: folders and names of hosts too, of a
        format that leaves them out.
        """


@cache
def formats() -> tuple[str, ...]:
    """The names of all formats, the default first: the folders here."""
    from pkgutil import iter_modules  # of no use to who knows the format

    found = (module.name for module in iter_modules(__path__) if module.ispkg and module.name not in _NO_FORMATS)
    return tuple(sorted(found, key=lambda name: (name != _DEFAULT, name)))


def formats_of(document: str) -> tuple[str, ...]:
    """The names of the formats in which a document can be had, the default first."""
    return tuple(name for name in formats() if _has(name, document))


def _has(name: str, document: str) -> bool:
    """Whether a format, if it is one, has a renderer of a document; the others are not looked at."""
    if name in _NO_FORMATS or document not in DOCUMENTS:
        return False
    with suppress(ModuleNotFoundError):  # no such format
        return find_spec(f"profkit.render.{name}.{document}") is not None
    return False


def format_of(output: PurePath, document: str) -> str:
    """The format whose files are called so; raises UsageError."""
    suffixes = {suffix: name for name in formats_of(document) for suffix in _suffixes(name)}
    if output.suffix not in suffixes:
        raise UsageError(f"no format is known for {output.name}", hint=f"use {', '.join(suffixes)}, or say -f")
    return suffixes[output.suffix]


def renderer_for(document: str, name: str) -> Renderer:
    """The renderer of a document in a format; raises UsageError for a pair that nobody renders."""
    if not _has(name, document):
        known = formats_of(document)
        raise UsageError(f"{document} has no format {name!r}", hint=f"one of {', '.join(known)}")
    renderer: Renderer = import_module(f"profkit.render.{name}.{document}").render
    return renderer


def _suffixes(name: str) -> tuple[str, ...]:
    suffixes: tuple[str, ...] = import_module(f"profkit.render.{name}").SUFFIXES
    return suffixes
