"""The shell of a page: one HTML file with one script and one style sheet, and a policy that allows nothing else.

All that comes from a document is escaped by jinja2 and goes through `Hider.shown` first; the script and the style are
constant, and the policy names their hashes. Data that the script draws lies in blocks that no browser executes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import msgspec

from profkit.model.documents.tracks import CATEGORIES
from profkit.render.html.parts.hidden import Hider
from profkit.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

_TEXTURES: Final = (
    "comm_hidden", "copy_exposed", "copy_hidden", "idle_sync", "idle_launch", "idle_host", "idle_dependency",
    "idle_unknown", "wait",
)  # fmt: skip
"""Categories that are told apart by a texture as well as by colour."""


_QUANTITY: Final = re.compile(r"(?<!\w)[\d.,]*\d(?:x| (?:ns|us|ms|s|%))(?!\w)")


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """What the script draws: JSON and base64 that hold no `<`."""

    meta: str = ""
    data: str = ""

    def __post_init__(self) -> None:
        if "<" in self.meta or "<" in self.data:
            raise ValueError("the data of a page holds a <, which could end its block")


def made(template: str, *, title: str, sources: Iterable[str], with_paths: bool = False, **values: Any) -> str:
    """The page of a template, filled with `values`; `sources` are the paths that the document was read from."""
    drawn = values.pop("drawn", None) or Drawn()
    environment = _environment(Hider(sources, with_paths=with_paths), with_paths=with_paths)
    text = environment.get_template(template).render(
        title=title, drawn_meta=_raw(drawn.meta), drawn_data=_raw(drawn.data), **values
    )
    return text.rstrip("\n") + "\n"


def policy() -> str:
    """The Content-Security-Policy: nothing from anywhere, but the constant script and style."""
    script, style = (_hash(_static(name)) for name in ("page.js", "page.css"))
    return (
        f"default-src 'none'; img-src data:; style-src '{style}'; script-src '{script}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _static(name: str) -> str:
    """A constant file of the page, as a browser hashes it: with line feeds alone."""
    text = files(__package__).joinpath("static", name).read_text(encoding="utf-8").replace("\r\n", "\n")
    end = "</script" if name.endswith(".js") else "</style"
    if end in text.lower() or "<!--" in text:
        raise ValueError(f"{name} holds {end} or <!--, which ends or bends its element")
    return text


def _environment(hider: Hider, *, with_paths: bool) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> object:
        return hider.shown(value) if type(value) is str else value

    environment = Environment(
        loader=PackageLoader("profkit.render.html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        policy=Markup(policy()),  # noqa: S704 - constant
        script=Markup(_static("page.js")),  # noqa: S704 - constant
        style=Markup(_static("page.css")),  # noqa: S704 - constant
        version=__version__,
        categories=CATEGORIES,
        textures=_TEXTURES,
        with_paths=with_paths,
        parted=_parted,
    )
    return environment


def _parted(sentence: str) -> tuple[str, str, str]:
    """A sentence before, at and after its first quantity, which a reader looks for."""
    found = _QUANTITY.search(sentence)
    return (sentence, "", "") if found is None else (sentence[: found.start()], found[0], sentence[found.end() :])


def _raw(text: str) -> object:
    """A block's content as it is; `Drawn` has looked that nothing in it ends the block."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 - holds no <
