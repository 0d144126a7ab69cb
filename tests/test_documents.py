"""What the documents say of the program and of its tests is so: names, warnings, limits. Pages: `tests/site`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from profkit.ingest.assemble.devices import MAX_DEVICES
from profkit.ingest.numbers import MAX_RANKS
from profkit.ingest.texts import LONGEST_LABEL, LONGEST_TEXT, MOST_TEXT
from tests.conftest import ROOT
from tests.thresholds import SOURCES, as_is

DOCUMENTS = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTS = [path for path in DOCUMENTS if "reference" not in path.parts]
"""Not the pages that each build of the site makes (`tests/site`)."""
FOLDERS = ("analyses", "bench", "docs", "profkit", "tests", "workloads")
CITATION = re.compile(r"docs/(\w+\.md)(?:,? (rule|section) (\d+))?")
NOT_SHIPPED = re.compile(
    r"\b(anchors|architecture|capture|causes|diagnosis|hardening|house|language|nsight|peers|proof|roof|seeds|ux)\.md\b"
    r"|\bdiagnosis,? (?:rule )?\d|\bdesign/\w"
)
"""The notes that profkit was designed from, which are not in this repository."""
PLACE = re.compile(r"`((?:tests|profkit|analyses|docs|workloads|bench)/[\w./-]*?)(?:::(\w+))?`")


def places() -> Iterator[tuple[str, str]]:
    for document in DOCUMENTS:
        yield from PLACE.findall(document.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("path", "name"), sorted(set(places())))
def test_a_place_that_a_document_names_is_there(path: str, name: str) -> None:
    assert (ROOT / path).exists()
    if name:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def texts() -> Iterator[tuple[str, str]]:
    """Every file that may cite a document, with its text."""
    found = (path for folder in FOLDERS for kind in ("*.py", "*.md") for path in sorted((ROOT / folder).rglob(kind)))
    for path in [*DOCUMENTS[:3], ROOT / "Makefile", ROOT / "pyproject.toml", *found]:
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def test_nothing_cites_a_note_that_is_not_here() -> None:
    cited = [
        (path, note[0])
        for path, text in texts()
        for note in NOT_SHIPPED.finditer(re.sub(r"docs/\w+\.md", "", text))
        if path != "tests/test_documents.py"
    ]
    assert cited == []


def test_every_cited_rule_and_section_is_there() -> None:
    cited = {(name, kind, number) for _, text in texts() for name, kind, number in CITATION.findall(text)}
    assert ("sources.md", "rule", "7") in cited
    for name, kind, number in sorted(cited):
        heading = {"rule": f"\n### {number}. ", "section": f"\n## {number}. "}.get(kind, "")
        assert heading in (ROOT / "docs" / name).read_text(encoding="utf-8"), f"docs/{name}, {kind} {number}"


def test_every_threshold_is_the_one_that_holds() -> None:
    text = SOURCES.read_text(encoding="utf-8")
    assert len(re.findall(r"^\| `\w+\.\w+", text, re.MULTILINE)) > 30
    assert as_is(text) == text, "a threshold changed: make golden"


def test_every_threat_names_its_tests() -> None:
    rows = [line.split("|")[1:-1] for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("| ")]
    threats = [cells for cells in rows if cells[0].strip() != "threat"]
    assert len(threats) >= 12
    for threat, _, held_by in threats:
        assert any(path.startswith("tests/") for path, _ in PLACE.findall(held_by)), threat


def warnings_of(path: Path) -> Iterator[str]:
    """Give the ids of warnings that a module of the reader makes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in {
            "TraceWarning",
            "warn",
            "_warn",
        }:
            given = [*node.args, *(word.value for word in node.keywords if word.arg == "id")]
            texts = [arg.value for arg in given if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            yield from (text for text in texts if re.fullmatch(r"[a-z]+\.[a-z]+", text))


def test_every_warning_is_explained() -> None:
    told = (ROOT / "docs" / "method.md").read_text()
    made = {name for path in (ROOT / "profkit" / "ingest").rglob("*.py") for name in warnings_of(path)}
    assert {"ts.zero", "names.cut", "metadata.range", "nsys.open", "trace.truncated"} <= made
    assert sorted(name for name in made if name not in told and not name.startswith("nsys.")) == []


@pytest.mark.parametrize(
    "said",
    [
        f"at most {MAX_DEVICES} devices",
        f"a name above {LONGEST_TEXT:,} characters; above fewer ({LONGEST_LABEL} at least)",
        f"more than {MOST_TEXT:,}",
        f"`rank` is not 0 to {MAX_RANKS - 1:,}, `world_size` not 1 to {MAX_RANKS:,}",
    ],
)
def test_a_limit_is_the_one_that_holds(said: str) -> None:
    assert said in (ROOT / "docs" / "method.md").read_text()
