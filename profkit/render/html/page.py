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
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from profkit.model.documents.tracks import CATEGORIES, Tracks
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


# ---------------------------------------------------------------------------------------------- what a page leaves out


LEFT_OUT: Final = "…"
"""What stands for a folder."""
_URL: Final = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{0,15}://)(?:[^\s'\"<>/?#]*/)*([^\s'\"<>/?#]*)(?:[?#][^\s'\"<>]*)?")
_HOME: Final = re.compile(r"(?<![\w.…~-])/(?:home|Users|root/home)/[^/\\\s'\"<>|,;()]+")
_OWNER: Final = re.compile(r"^(?:file://)?/(?:home|Users)/([^/]+)/")
_QUOTED: Final = re.compile(r"(['\"])(?:~|[A-Za-z]:)?[/\\][^'\"]*[/\\]([^'\"/\\]*)\1")
_PATH: Final = re.compile(
    r"(?<![\w.…/\\~-])(?:~[\w-]*|[A-Za-z]:)?(?:[/\\][^\s/\\'\"<>|,;()]+)+[/\\]([^\s/\\'\"<>|,;()]*)"
    r"|(?<![\w.…/\\])~[\w-]*/([^\s/\\'\"<>|,;()]*)"
)
_WORKER: Final = re.compile(r"[\w.-]{1,120}_(\d+)\.(\d{10,})(?=\.pt\.trace\.json)")
"""How torch.profiler's own handler calls a file: host, process, time."""
_OWN_NAMES: Final = ".pt.trace.json"


class Hider:
    """Makes texts fit to be shown: printable, on one line, and without folders and hosts unless `with_paths`.

    A page is mailed to people who were never meant to see the disk it was made on. Every text that a template prints
    goes through `shown`, so that nothing has to be remembered in a template.
    `hosts`: those that its sentences name; they become host-0, host-1 and so on, on the whole page.
    `paths`: those that the document was read from, and of code. By them alone are known a folder with a space in its
    name, and a home directory where a place names its last part (`ann/train.py`).
    """

    def __init__(self, paths: Iterable[str], *, with_paths: bool, hosts: Sequence[str] = ()) -> None:
        self._is_open = with_paths
        self._hosts = {clean(host): f"host-{place}" for place, host in enumerate(hosts)}
        longest_first = sorted(map(re.escape, self._hosts), key=len, reverse=True)
        self._host = re.compile(rf"(?<![\w.-])(?:{'|'.join(longest_first)})(?![\w-]|\.\w)") if hosts else None
        known = [clean(path) for path in paths]
        parents = {str(PurePath(path).parent) for path in known}
        owners = {re.escape(found[1]) for path in known if (found := _OWNER.match(path))}
        self._owner = re.compile(rf"(?<![\w./~-])(?:{'|'.join(sorted(owners))})/") if owners else None
        self._folders = sorted((folder for folder in parents if _is_absolute(folder)), key=len, reverse=True)

    def shown(self, text: str) -> str:
        """The text as the page has it."""
        line = clean(text)
        if self._is_open:
            return line
        if self._host is not None:
            line = self._host.sub(lambda found: self._hosts[found[0]], line)
        for folder in self._folders:
            line = line.replace(f"{folder}/", f"{LEFT_OUT}/").replace(folder, LEFT_OUT)
        if "/" in line or "\\" in line:
            line = _URL.sub(rf"\1{LEFT_OUT}/\2", line) if "://" in line else line
            line = _QUOTED.sub(rf"\1{LEFT_OUT}/\2\1", line)
            line = _HOME.sub("~", line)
            line = self._owner.sub("~/", line) if self._owner is not None else line
            line = _PATH.sub(lambda found: f"{LEFT_OUT}/{found[1] or found[2] or ''}", line)
        return _WORKER.sub(r"host_\1.\2", line) if _OWN_NAMES in line else line


def _is_absolute(folder: str) -> bool:
    return len(folder) > 1 and (folder.startswith(("/", "~", "\\")) or folder[1:2] == ":" or "://" in folder)
