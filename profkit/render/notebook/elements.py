"""Elements of HTML for a notebook: built as a tree, which escapes every text, and styled in place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from xml.etree import ElementTree as ET

from profkit.plain import clean

Part = ET.Element | str

_FADED: Final = "opacity:0.75"
_CODE: Final = "font-family:monospace;white-space:pre-wrap;padding:2px 6px;border:1px solid rgba(128,128,128,0.4)"
_CELL: Final = "text-align:{};padding:1px 10px 1px 0"
NAMES: Final = {"good": "#1b7f3b", "bad": "#b3261e", "open": "#8a5a00"}
"""Background of the answer's word; white on each has a contrast of 4.5 or more."""


def element(tag: str, *parts: Part, style: str = "", title: str = "") -> ET.Element:
    """An element with texts and elements in it."""
    made = ET.Element(tag, {name: clean(value) for name, value in (("style", style), ("title", title)) if value})
    last: ET.Element | None = None
    for part in parts:
        if isinstance(part, ET.Element):
            made.append(part)
            last = part
        elif last is None:
            made.text = (made.text or "") + clean(part)
        else:
            last.tail = (last.tail or "") + clean(part)
    return made


def page(*parts: ET.Element | None) -> str:
    """What a notebook shows."""
    shown = (part for part in parts if part is not None)
    whole = element("div", *shown, style="max-width:60em;line-height:1.45")
    return ET.tostring(whole, encoding="unicode", method="html")


def answer(word: str, kind: str, meaning: str, beside: str = "") -> ET.Element:
    """The first line: the answer's word, what it means, how sure it is."""
    badge = element("b", word, style=f"background:{NAMES[kind]};color:#fff;padding:2px 8px;border-radius:3px")
    return element("div", badge, " ", element("b", meaning), " ", element("span", beside, style=_FADED))


def line(*parts: Part) -> ET.Element:
    """A line of text."""
    return element("div", *parts)


def faded(text: str) -> ET.Element:
    """Text that is read last."""
    return element("div", text, style=_FADED)


def command(label: str, text: str) -> ET.Element | None:
    """A command to paste under its label; None for none."""
    if not text:
        return None
    return element("div", f"{label}: ", element("code", text, style=_CODE), style="margin-top:6px")


def listed(title: str, items: Iterable[str]) -> ET.Element | None:
    """A numbered list under its title; None without items."""
    rows = [element("li", item) for item in items]
    if not rows:
        return None
    head = element("b", title)
    return element("div", head, element("ol", *rows, style="margin:0 0 0 1.6em;padding:0"), style="margin-top:6px")


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, is_text: Sequence[bool]) -> ET.Element:
    """A table; text columns to the left, numbers to the right."""
    styles = [_CELL.format("left" if flag else "right") for flag in is_text]
    head = element("tr", *(element("th", text, style=style) for text, style in zip(headers, styles, strict=True)))
    body = [
        element("tr", *(element("td", text, style=style) for text, style in zip(row, styles, strict=True)))
        for row in rows
    ]
    return element("table", element("thead", head), element("tbody", *body), style="margin-top:6px")
