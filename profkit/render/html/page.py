"""The shell of a page: one HTML file with one script and one style sheet, and a policy that allows nothing else.

All that comes from a document is escaped by jinja2 and goes through `Hider.shown` first; the script and the style are
constant, and the policy names their hashes. Data that the script draws lies in blocks that no browser executes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from profkit.model.documents.tracks import CATEGORIES, Tracks
from profkit.render.html.parts.hidden import Hider
from profkit.shell import clean
from profkit.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

_TEXTURES: Final = (
    "comm_hidden", "copy_exposed", "copy_hidden", "idle_sync", "idle_launch", "idle_host", "idle_dependency",
    "idle_unknown", "wait",
)  # fmt: skip
"""Categories that are told apart by a texture as well as by colour."""


_NO_BREAK: Final = "\u00a0"
_QUANTITY: Final = re.compile(r"(?<![\w.,])\d(?:[\d.,]{0,30}\d)?(?:x| (?:ns|us|ms|s|%))(?!\w)")


def made(  # noqa: PLR0913 - by name
    template: str,
    *,
    title: str,
    sources: Iterable[str],
    with_paths: bool = False,
    hosts: Sequence[str] = (),
    tracks: Sequence[Tracks] = (),
    is_cpu: bool = False,
    **values: Any,
) -> str:
    """The page of a template, filled with `values`; `sources` are the paths that its texts may hold, `hosts` the hosts.

    `tracks`: what the script draws of each rank; `is_cpu`, whether the parts of a budget are called as a CPU's are.
    """
    hider = Hider(sources, with_paths=with_paths, hosts=hosts)
    environment = _environment(hider, with_paths=with_paths)
    meta, block = _data(tracks, hider, is_cpu=is_cpu) if tracks else ("", "")
    text = environment.get_template(template).render(title=title, meta=_raw(meta), block=_raw(block), **values)
    return text.rstrip("\n") + "\n"


def _data(tracks: Sequence[Tracks], hider: Hider, *, is_cpu: bool) -> tuple[str, str]:
    """The JSON and the base64 of what the script draws; names in it are as harmless as those in the text."""
    from profkit.render.html import data

    meta = data.meta_of(tracks, is_cpu=is_cpu)
    for rank in meta["ranks"]:
        rank["names"] = [hider.shown(name) for name in rank["names"]]
        for labelled in (*rank["tracks"], *rank["curves"], *rank["proofs"].values()):
            labelled["label"] = hider.shown(labelled["label"])
        for track in rank["tracks"]:
            track["group"] = hider.shown(track["group"])
        rank["proofs"] = {clean(key): proof for key, proof in rank["proofs"].items()}
    return data.safe_json(meta), data.block_of(tracks)


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
    from markupsafe import Markup, escape

    def shown(value: object) -> object:
        return hider.shown(value) if type(value) is str else value

    def glued(sentence: str) -> object:
        """A sentence whose quantities are not parted from their units at the end of a line."""
        return escape(_QUANTITY.sub(lambda found: found[0].replace(" ", _NO_BREAK), hider.shown(sentence)))

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
    environment.filters["glued"] = glued
    return environment


def _parted(sentence: str) -> tuple[str, str, str]:
    """A sentence before, at and after its first quantity, which a reader looks for."""
    found = _QUANTITY.search(sentence)
    return (sentence, "", "") if found is None else (sentence[: found.start()], found[0], sentence[found.end() :])


def _raw(text: str) -> object:
    """A block's content as it is; raises ValueError where something in it could end the block."""
    from markupsafe import Markup

    if "<" in text:
        raise ValueError("the data of a page holds a <, which could end its block")
    return Markup(text)  # noqa: S704 - holds no <
