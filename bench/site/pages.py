"""The pages that are read from the program: commands, findings, Python, names of kernels, the decision.

Each build writes them into docs/reference.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from bench.site import decision, names

FOLDER: Final = "reference"
_COLUMNS: Final = "100"
_UNQUOTED: Final = re.compile(r"(: |-> )'([^']*)'")
"""Annotations that are not evaluated are printed as strings."""
_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
_DOCUMENTS: Final = (
    "profkit.model.documents.report.Report",
    "profkit.model.documents.report.Verdict",
    "profkit.model.finding.Finding",
    "profkit.model.finding.Evidence",
    "profkit.model.finding.NextTool",
    "profkit.model.documents.rank_report.RankReport",
    "profkit.model.documents.rank_report.DeviceReport",
    "profkit.model.budget.Budget",
    "profkit.model.documents.fleet.Fleet",
    "profkit.model.documents.comparison.Comparison",
    "profkit.model.documents.comparison.Judgement",
    "profkit.model.documents.scaling.ScalingReport",
    "profkit.model.documents.ladder.LadderReport",
    "profkit.model.trace.Trace",
)
"""What the functions give, and what stands in it."""


def write(source: str | Path) -> list[Path]:
    """Write the pages below the folder of the site's sources; a page that is the same is left alone."""
    folder = Path(source) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    made = {"cli": cli(), "findings": findings(), "api": api(), "decision": decision.page(), "names": names.page()}
    paths = []
    for name, text in made.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def cli() -> str:
    """Each command's help, as `profkit COMMAND --help` prints it on 100 columns."""
    from click.testing import CliRunner

    from profkit.cli import COMMANDS, group

    run = CliRunner(env={"COLUMNS": _COLUMNS, "TERMINAL_WIDTH": _COLUMNS})
    parts = [
        "# Every command",
        "This page is made from the program. Flags that several commands share are on [](/cli.md).",
    ]
    for words in ((), *((name,) for name in COMMANDS)):
        text = run.invoke(group, [*words, "--help"], prog_name="profkit").output.rstrip()
        title = " ".join(("profkit", *words))
        parts.append(f"## {title}\n\n```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def findings() -> str:
    """Each verdict's findings and each check, as `profkit explain` has them."""
    from profkit.findings import KINDS
    from profkit.findings.capture import CHECKS
    from profkit.model.documents.report import Bottleneck

    parts = ["# Every finding", "This page is made from the program: `profkit explain` prints the same."]
    for verdict in (*Bottleneck, None):
        kinds = [kind for kind in KINDS.values() if kind.bottleneck is verdict]
        if kinds:
            leads = (
                "Findings that lead to no verdict of their own"
                if verdict is None
                else f"Findings that lead to {verdict}"
            )
            parts.append(f"## {leads}")
        parts += [f"({kind.id})=\n### {kind.id}: {kind.title}\n\n{_told(kind.id)}" for kind in kinds]
    parts.append("## Checks of the capture")
    parts += [f"({check.id})=\n### {check.id}\n\n{_told(check.id)}" for check in CHECKS.values()]
    return "\n\n".join(parts) + "\n"


def _told(name: str) -> str:
    """What `profkit explain` prints below its title."""
    from click.testing import CliRunner

    from profkit.cli import group

    text = CliRunner(env={"COLUMNS": _COLUMNS}).invoke(group, ["explain", name]).output
    return f"```text\n{_STYLE.sub('', text).partition(chr(10) * 2)[2].rstrip()}\n```"


def _blocks(text: str) -> str:
    """A docstring as Markdown: what is indented is code, what stands in single backticks stays code."""
    lines, in_code = [], False
    for line in inspect.cleandoc(text).split("\n"):
        is_code = line.startswith("    ") or (in_code and not line)
        if is_code and not in_code:
            lines.append("```python")
        elif in_code and not is_code:
            lines.insert(len(lines) - _empty_at_end(lines), "```")
        in_code = is_code
        lines.append(line[4:] if is_code else line)
    if in_code:
        lines.append("```")
    return "\n".join(lines).replace("<", "\\<") if "```" not in "\n".join(lines) else "\n".join(lines)


def _empty_at_end(lines: Iterable[str]) -> int:
    count = 0
    for line in reversed(list(lines)):
        if line:
            break
        count += 1
    return count


def api() -> str:
    """The functions and classes of `import profkit` and `profkit.capture`, with the fields of what they give."""
    import profkit

    parts = [
        "# Python",
        "This page is made from the docstrings. `import profkit` loads nothing heavy; a name is loaded when it is first used."
        " Times are in ns and fractions are of 1 where a name does not say otherwise.",
        "## Functions",
    ]
    for name in profkit.__all__:
        made = getattr(profkit, name)
        if not inspect.isclass(made):
            parts += _function(f"profkit.{name}", _callable(made, name))
    parts.append("## In a training script")
    capture = import_module("profkit.capture")
    for name in capture.__all__:
        parts += _function(f"profkit.capture.{name}", getattr(capture, name))
    parts.append("## What they give")
    for path in _DOCUMENTS:
        module, _, name = path.rpartition(".")
        parts += _class(getattr(import_module(module), name))
    errors = import_module("profkit.errors")
    parts += ["## Errors", "Each has `message`, `hint` and the exit code of the command line, `exit_code`."]
    rows = [
        f"| `{name}` | {made.exit_code} | {_in_row(inspect.getdoc(made) or '')} |"
        for name, made in vars(errors).items()
        if inspect.isclass(made) and issubclass(made, errors.ProfkitError)
    ]
    parts.append("\n".join(["| error | exit code | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _callable(made: Any, name: str) -> Any:
    """A package that can be called, as `profkit.compare`, stands for the function in it."""
    return import_module("profkit.compare.paths").compare_paths if name == "compare" else made


def _function(name: str, made: Any) -> list[str]:
    signature = _signature(made)
    shown = f"{name}{signature}"
    if len(shown) > 88:
        inner, _, gives = signature[1:].rpartition(") -> ")
        shown = f"{name}(\n" + "".join(f"    {one},\n" for one in _split(inner)) + f") -> {gives}"
    return [f"### {name}", f"```python\n{shown}\n```", _blocks(inspect.getdoc(made) or "")]


def _signature(made: Any) -> str:
    return _UNQUOTED.sub(r"\1\2", str(inspect.signature(made)))


def _split(inner: str) -> Iterator[str]:
    """The parameters of a signature: split at commas that stand in no brackets."""
    depth, one = 0, ""
    for sign in inner:
        depth += (sign in "[(") - (sign in "])")
        if sign == "," and not depth:
            yield one.strip()
            one = ""
        else:
            one += sign
    yield one.strip()


def _class(made: type) -> list[str]:
    rows = [f"| `{name}` | `{kind}` | {_in_row(said)} |" for name, kind, said in _fields(made)]
    table = ["\n".join(["| field | type | |", "|---|---|---|", *rows])] if rows else []
    methods = [
        f"`{name}{_signature(one)}`: {_first(one)}"
        for name, one in vars(made).items()
        if inspect.isfunction(one) and not name.startswith("_")
    ]
    properties = [
        f"`{name}`: {_first(one.fget)}"
        for name, one in vars(made).items()
        if isinstance(one, property) and not name.startswith("_")
    ]
    listed = ["\n".join(f"- {one}" for one in [*properties, *methods])] if properties or methods else []
    return [
        f"### {made.__module__.partition('.')[0]} {made.__name__}".replace("profkit ", ""),
        _blocks(inspect.getdoc(made) or ""),
        *table,
        *listed,
    ]


def _first(made: Any) -> str:
    return _in_row((inspect.getdoc(made) or "").partition("\n\n")[0])


def _in_row(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")


def _fields(made: type) -> Iterator[tuple[str, str, str]]:
    """Name, type and comment or docstring of each field, as the source has them."""
    source = textwrap.dedent(inspect.getsource(made))
    body = ast.parse(source).body[0]
    if not isinstance(body, ast.ClassDef):
        raise TypeError(f"{made} is no class")
    lines = source.splitlines()
    for one, after in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and not one.target.id.startswith("_"):
            said = lines[one.end_lineno - 1 if one.end_lineno else 0].partition("  # ")[2]
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                said = str(after.value.value)
            yield one.target.id, re.sub(r"\|", "\\|", ast.unparse(one.annotation)), said
