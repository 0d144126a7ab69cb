"""A page taken apart as a browser does it: its elements, its text, its links; raises AssertionError where it is odd."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import unquote

VOID: Final = {"meta", "link", "br", "hr", "img", "input"}
_TAGS: Final = """
    html head meta title link style body a svg defs pattern path header div nav ul ol li main section p span h1 h2 h3
    figure figcaption strong b rect g line text polyline circle pre code button table thead tbody tr th td article
    details summary dl dt dd footer script
"""
_ATTRIBUTES: Final = """
    lang charset http-equiv content name rel href class id role aria-label aria-labelledby aria-hidden tabindex type
    hidden scope data-v data-search data-copy-from width height x y x1 x2 y1 y2 cx cy r rx d dy fill points
    patternunits viewbox preserveaspectratio vector-effect
"""
TAGS: Final = frozenset(_TAGS.split())
ATTRIBUTES: Final = frozenset(_ATTRIBUTES.split())
"""All that a page has: none that runs, loads or styles."""
INLINE: Final = {"a", "b", "strong", "span", "code"}
HEAD_META: Final = {"viewport", "referrer", "color-scheme", "generator"}


class Page(HTMLParser):
    """A page: `texts` by place, `links`, `ids`, `blocks` of scripts by id or type, `styles`."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.texts: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.copies: list[str] = []
        self.policies: list[str] = []
        self.scripts: dict[str, str] = {}
        self.styles: list[str] = []
        self.cells: list[tuple[str, str | None]] = []
        """Text and number of each cell."""
        self.rects: list[dict[str, str | None]] = []
        self._block = ""
        self.feed(html)
        self.close()
        assert self.open == []
        assert html.startswith("<!doctype html>")

    @property
    def text(self) -> str:
        """All text that is shown, on one line."""
        return " ".join("".join(self.texts).split())

    @property
    def meta(self) -> Any:
        """What describes the rows that the script draws; None without any."""
        return json.loads(self.scripts["profkit-meta"]) if self.scripts["profkit-meta"] else None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._begin(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._begin(tag, attrs)

    def _begin(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        self.texts += [] if tag in INLINE else [" "]
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        assert set(names) <= ATTRIBUTES, (tag, set(names) - ATTRIBUTES)
        found = dict(attrs)
        if "href" in found:
            href = found["href"] or ""
            assert href.startswith("#") or (tag == "link" and href == "data:,"), href
            self.links.append(href)
        if "id" in found:
            self.ids.append(found["id"] or "")
        if "data-copy-from" in found:
            self.copies.append(found["data-copy-from"] or "")
        if tag == "meta":
            self._head(found)
        if tag == "script":
            self._block = found.get("id") or found.get("type") or "code"
            assert self._block not in self.scripts
            assert found.get("type") in {None, "application/json", "text/plain"}
            self.scripts[self._block] = ""
        if tag == "td":
            self.cells.append(("", found.get("data-v")))
        if tag == "rect":
            self.rects.append(found)
        assert "fill" not in found or re.fullmatch(r"url\(#t-\w+\)", found["fill"] or "")

    def _head(self, found: dict[str, str | None]) -> None:
        if "http-equiv" in found:
            assert found["http-equiv"] == "Content-Security-Policy"
            self.policies.append(found["content"] or "")
        else:
            assert "charset" in found or found["name"] in HEAD_META

    def handle_endtag(self, tag: str) -> None:
        assert tag not in VOID
        assert self.open
        assert self.open.pop() == tag, tag
        self.texts += [] if tag in INLINE else [" "]

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside == "script":
            self.scripts[self._block] += data
        elif inside == "style":
            self.styles.append(data)
        else:
            self.texts.append(data)
            if self.cells and "td" in self.open:
                self.cells[-1] = (self.cells[-1][0] + data, self.cells[-1][1])

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration: {data}")


def checked(html: str) -> Page:
    """The page, of which all holds that must hold of any."""
    page = Page(html)
    html.encode("utf-8")  # no lone surrogates
    assert set(page.scripts) == {"code", "profkit-meta", "profkit-data"}
    assert not set("<>&\u2028\u2029") & set(page.scripts["profkit-meta"])
    assert re.fullmatch(r"[A-Za-z0-9+/]*=*", page.scripts["profkit-data"])
    (policy,), (style,) = page.policies, page.styles
    assert policy.startswith("default-src 'none'; img-src data:; ")
    assert policy.endswith("; base-uri 'none'; form-action 'none'")
    assert f"style-src '{hash_of(style)}'" in policy
    assert f"script-src '{hash_of(page.scripts['code'])}'" in policy
    assert len(page.ids) == len(set(page.ids))
    assert "url(http" not in style
    assert "@import" not in style
    proofs = {(key, rank["rank"]) for rank in (page.meta["ranks"] if page.meta else ()) for key in rank["proofs"]}
    for link in page.links:
        if link.startswith("#see="):
            key, _, rank = link.removeprefix("#see=").partition("&rank=")
            assert (unquote(key), int(rank) if rank else None) in proofs, link
        elif link.startswith("#"):
            assert link[1:] in page.ids, link
    assert {copy[1:] for copy in page.copies} <= set(page.ids)
    return page


def hash_of(text: str) -> str:
    """The hash of an inline element as a policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
