"""The README is short, links lead somewhere, pictures are what the program draws, the site builds without a warning."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from analyses.field.judge import RESULTS
from analyses.field.page import page, read_waves
from analyses.field.registry import read_registry
from bench.site import decision, links, pages, shots
from profkit.cli import COMMANDS
from profkit.findings import KINDS
from profkit.findings.kind import VERDICTS
from tests.conftest import ROOT
from tests.site.commands import PAGES

MOST_WORDS = 900
README = ROOT / "README.md"
LINK = re.compile(r"!?\[[^\]]*\]\(([^)#]+)(?:#[\w.-]+)?\)")
FIELD = (
    "verdicts right, or honestly open",
    "wrong",
    "first advice is the change that helped",
    "“at most” holds what the change saved",
)
ACCURACY = (
    "the verdict is right, where it answers",
    "false alarms on healthy programs and decoys",
    "ceilings not below",
)


def test_the_readme_is_short() -> None:
    assert len(README.read_text().split()) <= MOST_WORDS


def test_the_readme_has_one_terminal_one_page_and_the_numbers_of_the_measurement() -> None:
    text = README.read_text()
    assert re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text) == ["docs/pictures/data.svg", "docs/screens/light.png"]
    accuracy, field = ((ROOT / "docs" / name).read_text() for name in ("accuracy.md", "field.md"))
    told = [*((accuracy, row, r"[^|]*\|") for row in ACCURACY), *((field, row, "") for row in FIELD)]
    for table, row, goal in told:
        found = re.search(rf"^\| {row}[^|]*\|{goal} ([^|]+) \|", table, re.MULTILINE)
        assert found is not None
        assert f"| {found[1]} |" in text, row
    assert text.index(FIELD[0]) < text.index(ACCURACY[0]), "what others captured counts first"


def test_the_field_page_is_what_the_kept_answers_say() -> None:
    batches = read_registry()
    assert (ROOT / "docs" / "field.md").read_text(encoding="utf-8") == page(read_waves(RESULTS, batches), batches)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_link_leads_to_a_file_of_the_repository(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in LINK.findall(re.sub(r"`[^`\n]+`", "", text)):
        if not re.match(r"\w+:", target):
            folder = ROOT / "docs" if target.startswith("/") else page.parent
            assert (folder / target.lstrip("/")).exists(), target


def test_each_page_has_a_place_in_the_menu() -> None:
    menus = [ROOT / "docs" / "index.md", ROOT / "docs" / "bottlenecks" / "index.md"]
    listed = {
        (menu.parent / (re.sub(r".*<(.*)>", r"\1", line) + ".md")).resolve()
        for menu in menus
        for block in re.findall(r"```\{toctree\}(.*?)```", menu.read_text(), re.DOTALL)
        for line in block.split("\n")
        if line.strip() and not line.startswith(":")
    }
    written = {page.resolve() for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert written - listed == {menus[0].resolve()}


def test_each_verdict_has_a_page_with_its_picture_ceiling_and_command() -> None:
    assert set(decision.PAGES) == set(VERDICTS)
    for verdict, name in decision.PAGES.items():
        text = (ROOT / "docs" / "bottlenecks" / f"{name}.md").read_text()
        assert text.startswith(f"# {verdict}\n")
        assert f"](../pictures/{name}.svg)" in text
        assert f"$ profkit {' '.join(shots.SHOTS[name])}\n" in text
        assert "\n## Ceiling\n" in text
        assert "\nprofkit explain " in text or name == "kernel"


@pytest.mark.parametrize("name", shots.SHOTS)
def test_a_picture_is_what_the_program_prints_today(name: str) -> None:
    drawn = (shots.PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    command, output = shots.said(name)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    assert shots.text_of(drawn) == "".join(f"$ {command}\n{plain}".split()), "make pictures"
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", drawn)


def test_the_tree_is_that_of_the_programs_constants() -> None:
    assert decision.PICTURE.read_text(encoding="utf-8") == decision.drawn(), "make pictures"


def test_references_have_every_command_finding_and_function(tmp_path: Path) -> None:
    made = {path.stem: path.read_text() for path in pages.write(tmp_path)}
    assert [name for name in COMMANDS if f"\n## profkit {name}\n" not in made["cli"]] == []
    assert [name for name in KINDS if f"\n({name})=\n" not in made["findings"]] == []
    assert "\x1b" not in made["findings"]
    assert "### profkit.triage\n" in made["api"]
    assert "paths: Paths" in made["api"]
    assert [verdict for verdict in VERDICTS if f"| [{verdict}](/bottlenecks/" not in made["decision"]] == []
    before = [path.stat().st_mtime_ns for path in sorted((tmp_path / pages.FOLDER).iterdir())]
    pages.write(tmp_path)
    assert [path.stat().st_mtime_ns for path in sorted((tmp_path / pages.FOLDER).iterdir())] == before


def test_a_name_of_a_document_or_a_finding_becomes_a_link_outside_code() -> None:
    source = ["See `docs/cli.md` and `host.sync`, not `train.py`.\n```sh\ncat `docs/cli.md`\n```\n"]
    links.link(None, "start", source)
    assert source[0].split("\n")[0] == "See [](/cli.md) and [`host.sync`](#host.sync), not `train.py`."
    assert "cat `docs/cli.md`" in source[0]


def test_a_flowchart_is_a_table_of_its_boxes() -> None:
    source = ['```mermaid\nflowchart TD\n  cli["cli: commands"] --> api["api: import profkit"]\n  api --> cli\n```\n']
    links.link(None, "architecture", source)
    rows = source[0].splitlines()
    assert rows[2:4] == ["| **cli** | commands | api |", "| **api** | import profkit | cli |"]


@pytest.mark.long(9)
@pytest.mark.parametrize("is_dead", [False, True])
def test_the_site_builds_without_a_warning_and_not_with_a_dead_link(is_dead: bool, tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    pytest.importorskip("furo")
    docs = ROOT / "docs"
    if is_dead:
        docs = tmp_path / "docs"
        docs.mkdir()
        (docs / "conf.py").write_text(
            (ROOT / "docs" / "conf.py").read_text().replace('"bench.site"', "").replace('["_static"]', "[]")
        )
        (docs / "index.md").write_text("# A page\n\n[Nowhere](nowhere.md)\n")
    line = [
        sys.executable,
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--nitpicky",
        "--keep-going",
        "--quiet",
        docs,
        tmp_path / "out",
    ]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) is is_dead, done.stderr
    assert ("nowhere.md" in done.stderr) is is_dead
