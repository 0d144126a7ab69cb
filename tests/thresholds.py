"""The numbers in docs/sources.md, which are constants of the program, named in a table's first column.

`file.CONSTANT` is a constant of a module, `finding.id[name]` a threshold in profkit/findings/.
"""

import ast
import re
from collections import defaultdict
from functools import cache

from profkit.findings import KINDS
from profkit.verdict.case import DOMINANT
from tests.conftest import ROOT

SOURCES = ROOT / "docs" / "sources.md"
_NAME = r"`[\w.]+\.\w+(?:\[[\w.]+\])?`"
_ROW = re.compile(rf"^\| ({_NAME}(?:, {_NAME})*) \| ([^|]*?) \|", re.MULTILINE)
_UNITS = {" %": 0.01, " us": 1_000, " KiB": 2**10, "": 1}


@cache
def constants() -> dict[str, list[float]]:
    """The numbers by name; several where files in two rooms are called alike."""
    found = defaultdict(list, {"case.DOMINANT": [DOMINANT]})  # made from the severities
    for kind in KINDS.values():
        found.update({f"{kind.id}[{name}]": [one.value] for name, one in kind.thresholds.items()})
    for path in (ROOT / "profkit").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            target = node.target if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [None])[0]
            if isinstance(target, ast.Name) and _is_arithmetic(node.value):
                found[f"{path.stem}.{target.id}"].append(eval(ast.unparse(node.value)))  # noqa: S307 - digits and operators
    return found


def _is_arithmetic(value: ast.expr | None) -> bool:
    parts = ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Constant
    return value is not None and all(
        isinstance(node, parts) and isinstance(getattr(node, "value", 0), int | float) for node in ast.walk(value)
    )


def as_is(text: str) -> str:
    """The document with each number as the program has it, in the unit that stands there."""
    return _ROW.sub(_row, text)


def _row(row: re.Match[str]) -> str:
    names, shown = row[1].strip("`").split("`, `"), row[2].split(", ")
    values = [_value(name, old) for name, old in zip(names, shown, strict=True)]
    return f"| {row[1]} | {', '.join(values)} |"


def _value(name: str, old: str) -> str:
    (value,) = constants()[name]
    unit = next(unit for unit in _UNITS if old.endswith(unit))
    return f"{value / _UNITS[unit]:.6g}{unit}"
