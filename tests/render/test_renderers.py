"""What holds for every renderer of every document: how it is found, what it loads, that no document breaks it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from rich.cells import cell_len

from profkit.errors import UsageError
from profkit.render import DOCUMENTS, format_of, formats, formats_of, renderer_for
from profkit.render.schema import schema
from tests.conftest import ROOT
from tests.render.documents import DOCUMENTS as DRAWN

PAIRS = [(document, name) for document in DOCUMENTS for name in formats_of(document)]


@pytest.mark.parametrize(("document", "name"), PAIRS)
def test_every_renderer_prints_every_document(document: str, name: str, tmp_path: Path) -> None:
    for (kind, _), made in DRAWN.items():
        if kind != document:
            continue
        value = made(tmp_path)
        for verbose in (False, True):
            text = renderer_for(document, name)(value, width=60, color=False, verbose=verbose, with_paths=False)
            assert text.endswith("\n")
            assert not text.endswith("\n\n\n")
            assert "\x1b" not in text
            if name == "json":
                jsonschema.Draft202012Validator(schema(document)).validate(json.loads(text))
            for width in (60, 80, 200) if name == "terminal" and document != "triage" else ():  # see test_terminal
                shown = renderer_for(document, name)(value, width=width, color=False, verbose=verbose)
                prose = [line for line in shown.splitlines() if "profkit " not in line]  # commands are never cut
                assert max(map(cell_len, prose)) <= width
            if name == "markdown":
                assert text.count("<details>") == text.count("</details>")
                assert not re.search(r"(?<!\\)<b>|^# title", text, re.MULTILINE)


def test_every_document_has_a_drawn_one_and_a_terminal() -> None:
    assert {kind for kind, _ in DRAWN} == set(DOCUMENTS)
    assert all(formats_of(document)[0] == "terminal" for document in DOCUMENTS)
    assert {"terminal", "json", "markdown", "html"} <= set(formats())
    assert "words" not in formats()


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("json", "out/report.json"),
        ("markdown", "r.md"),
        ("markdown", "r.markdown"),
        ("html", "r.html"),
        ("html", "r.htm"),
        ("terminal", "r.txt"),
    ],
)
def test_a_format_is_known_by_its_suffix(name: str, path: str) -> None:
    documents = ("triage", "compare", "scaling", "ladder", "kernels")
    assert all(format_of(Path(path), document) == name for document in documents)


@pytest.mark.parametrize("path", ["report.docx", "", "json5", "r.xhtml"])
def test_an_unknown_suffix_is_a_usage_error(path: str) -> None:
    with pytest.raises(UsageError, match="no format is known") as refused:
        format_of(Path(path), "triage")
    assert set(re.findall(r"\.\w+", str(refused.value.hint))) >= {".txt", ".json", ".md", ".markdown"}


@pytest.mark.parametrize(("document", "name"), [("compare", "pdf"), ("bench", "markdown"), ("triage", "words")])
def test_a_pair_without_a_renderer_is_a_usage_error(document: str, name: str) -> None:
    with pytest.raises(UsageError, match=f"{document} has no format '{name}'") as refused:
        renderer_for(document, name)
    assert refused.value.hint == f"one of {', '.join(formats_of(document))}"


@pytest.mark.parametrize(
    "code",
    [
        "import profkit.render",
        "import profkit.render.schema; profkit.render.schema.schema('triage')",
        "from profkit.render import renderer_for; renderer_for('triage', 'json'); renderer_for('triage', 'markdown')",
        "import profkit.render.terminal.triage",
    ],
)
def test_renderers_load_no_heavy_package(code: str) -> None:
    script = f"import sys; {code}; print('rich' in sys.modules, 'pandas' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["False"] * 3
