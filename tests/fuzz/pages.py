"""What must hold of every page: nothing of the input is live in it, and its data can be read."""

import base64
import json
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser

_LOADING = {"src", "srcset", "action", "formaction", "data", "poster", "background", "ping", "xlink:href", "manifest"}
_FORBIDDEN = {
    *("iframe", "object", "embed", "form", "base", "img", "video", "audio", "link", "frame", "portal", "template"),
}
_ICON = [("rel", "icon"), ("href", "data:,")]


class _Reader(HTMLParser):
    """Collects what a browser could run or load, and the blocks of data."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[tuple[str, str]] = []
        self.blocks: dict[str, str] = {}
        self.n_scripts = self.n_styles = 0
        self._block = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._block = ""
        if tag == "script":
            if given.get("type") in ("application/json", "text/plain"):
                self._block = given.get("id") or ""
            else:
                self.n_scripts += 1
        self.n_styles += tag == "style"
        if tag in _FORBIDDEN and attrs != _ICON:
            self.faults.append((f"element {tag}", str(attrs)[:200]))
        for name, value in attrs:
            target = (value or "").strip().lower()
            if name.startswith("on") or name == "style" or name in _LOADING:
                self.faults.append((f"attribute {name}", f"{tag} {target[:200]}"))
            if name == "href" and attrs != _ICON and not target.startswith("#"):
                self.faults.append(("link", target[:200]))

    def handle_data(self, data: str) -> None:
        if self._block:
            self.blocks[self._block] = self.blocks.get(self._block, "") + data


def faults_of_page(text: str) -> Iterator[tuple[str, str]]:
    """Each fault with what was seen."""
    read = _Reader()
    read.feed(text)
    read.close()
    yield from read.faults
    if (read.n_scripts, read.n_styles) != (1, 1):
        yield "elements", f"{read.n_scripts} scripts and {read.n_styles} styles"
    meta, block = read.blocks.get("profkit-meta", ""), read.blocks.get("profkit-data", "")
    if not meta.strip():
        return
    told = json.loads(meta)
    data = zlib.decompress(base64.b64decode(block))
    n_rows = sum(row["n"] for rank in told["ranks"] for row in rank["tracks"])
    n_points = sum(curve["n"] for rank in told["ranks"] for curve in rank["curves"])
    if len(data) != 8 + 17 * n_rows + 14 * n_points:
        yield "data", f"{len(data)} bytes for {n_rows} intervals and {n_points} points"
    for rank in told["ranks"]:
        for key, proof in rank["proofs"].items():
            if any(length < 0 for _, length in proof["spans"]) or proof["n"] < len(proof["spans"]):
                yield "proof", f"{key}: {str(proof)[:300]}"
