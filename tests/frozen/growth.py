"""What changed between two schemas of one document: additions, and what breaks a program that reads it.

A reader of the older schema must be right about every document of the newer one: what was always there is still there,
and has no kind of value that it did not have. New fields and new words of an enumeration are additions, which
docs/stability.md asks readers to pass over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Self

Schema = dict[str, Any]

_WORDS: Final = {"$schema", "title", "description", "$defs", "$ref", "$comment", "examples"}
"""Keywords that say nothing of a document's values; references are followed."""
_LOWER: Final = {"minimum", "exclusiveMinimum", "minItems", "minLength"}
_UPPER: Final = {"maximum", "exclusiveMaximum", "maxItems", "maxLength"}
_FOLLOWED: Final = {"type", "oneOf", "enum", "const", "properties", "required", "items"}


@dataclass(frozen=True, slots=True)
class Changes:
    """Sentences, each with the place in the document; `broken` first names what a reader would trip over."""

    added: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def __iadd__(self, other: Changes) -> Self:
        self.added.extend(other.added)
        self.broken.extend(other.broken)
        return self


def changes(old: Schema, new: Schema) -> Changes:
    """What the newer schema adds to the older one and what of it it breaks."""
    return _Comparison(old, new).of(old, new, "")


@dataclass(frozen=True, slots=True)
class _Comparison:
    old: Schema
    new: Schema
    under_way: list[tuple[int, int]] = field(default_factory=list)
    """Pairs of parts that are being compared: a `rank` may hold a `rank`."""

    def of(self, old: Schema, new: Schema, place: str) -> Changes:
        """Changes from one part of the older schema to its part of the newer one."""
        pair = (id(old), id(new))
        if pair in self.under_way:
            return Changes()
        self.under_way.append(pair)
        found = Changes()
        olds, news = _alternatives(old, self.old), _alternatives(new, self.new)
        for kind, choices in olds.items():
            if kind not in news:
                (found.added if kind == "null" else found.broken).append(f"{place or '.'}: is no {kind} any more")
                continue
            for choice in choices:
                tried = [self._alike(choice, other, place) for other in news[kind]]
                found += min(tried, key=lambda one: len(one.broken))
        found.broken.extend(f"{place or '.'}: may be {kind} now" for kind in news if kind not in olds)
        self.under_way.pop()
        return found

    def _alike(self, old: Schema, new: Schema, place: str) -> Changes:
        """Changes between two alternatives of one type."""
        found = Changes()
        found += self._properties(old, new, place)
        found += _values(old, new, place or ".")
        if "items" in old and "items" in new:
            found += self.of(old["items"], new["items"], f"{place}[]")
        elif "items" in old:
            found.broken.append(f"{place or '.'}: items may be anything now")
        for word in sorted((old.keys() | new.keys()) - _WORDS - _FOLLOWED):
            found += self._keyword(word, old.get(word), new.get(word), place)
        return found

    def _properties(self, old: Schema, new: Schema, place: str) -> Changes:
        found = Changes()
        olds, news = old.get("properties", {}), new.get("properties", {})
        found.broken.extend(f"{place}.{name}: removed" for name in olds if name not in news)
        found.added.extend(f"{place}.{name}: new" for name in news if name not in olds)
        must, still = set(old.get("required", ())), set(new.get("required", ()))
        found.broken.extend(f"{place}.{name}: may be absent now" for name in sorted((must - still) & news.keys()))
        found.added.extend(f"{place}.{name}: is always there now" for name in sorted((still - must) & olds.keys()))
        for name, part in olds.items():
            if name in news:
                found += self.of(part, news[name], f"{place}.{name}")
        return found

    def _keyword(self, word: str, old: Any, new: Any, place: str) -> Changes:
        """Changes of one keyword: a narrower bound is an addition, a wider one and all that is not known break."""
        if old == new:
            return Changes()
        if word == "additionalProperties" and isinstance(old, dict) and isinstance(new, dict):
            return self.of(old, new, f"{place}.*")
        said = f"{place or '.'}: {word} {old} is {new} now"
        is_narrower = new is not None and (
            old is None or (word in _LOWER and new >= old) or (word in _UPPER and new <= old)
        )
        return Changes(added=[said]) if is_narrower else Changes(broken=[said])


def _alternatives(schema: Schema, root: Schema) -> dict[str, list[Schema]]:
    """The parts of a schema by the type of value that they describe, references followed."""
    found: dict[str, list[Schema]] = {}
    if "$ref" in schema:
        target = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        schema = target | {word: value for word, value in schema.items() if word != "$ref"}
    if "oneOf" in schema:
        around = {word: value for word, value in schema.items() if word != "oneOf"}
        for choice in schema["oneOf"]:
            for kind, parts in _alternatives(choice, root).items():
                found.setdefault(kind, []).extend(around | part for part in parts)
        return found
    for kind in _kinds(schema):
        found.setdefault(kind, []).append({word: value for word, value in schema.items() if word != "type"})
    return found


def _kinds(schema: Schema) -> list[str]:
    said = schema.get("type")
    if isinstance(said, list):
        return said
    if said is not None:
        return [said]
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    names = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    return sorted({names[type(value)] for value in values}) or ["anything"]


def _values(old: Schema, new: Schema, place: str) -> Changes:
    """Changes of the words that a value may be."""
    found = Changes()
    words = [one.get("enum", [one["const"]] if "const" in one else None) for one in (old, new)]
    if words[0] is None or words[1] is None:
        if words[0] is not None:
            found.broken.append(f"{place}: may be any value now")
        elif words[1] is not None:
            found.added.append(f"{place}: is one of {words[1]} now")
        return found
    found.broken.extend(f"{place}: is never {word!r} any more" for word in words[0] if word not in words[1])
    found.added.extend(f"{place}: may be {word!r}" for word in words[1] if word not in words[0])
    return found
