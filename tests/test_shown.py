"""What `import profkit` lists, and how its documents show themselves in a notebook and in one line."""

import inspect
import pickle
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

import profkit
from profkit.errors import UsageError
from profkit.model.documents import shown
from profkit.render.notebook import html_of
from tests.conftest import ROOT
from tests.test_imports import loaded_after

TRACES = ROOT / "traces"
DATA = TRACES / "data_cpu.pt.trace.json.gz"
BAD = "</b><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[31m\n\"'&"
ALLOWED = {"div", "b", "span", "ol", "li", "code", "table", "thead", "tbody", "tr", "th", "td"}


class Parsed(HTMLParser):
    """The elements, attributes and text of some HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(name="report", scope="module")
def _report():
    return profkit.triage(DATA)


@pytest.fixture(name="comparison", scope="module")
def _comparison():
    return profkit.compare(DATA, TRACES / "data_workers2_cpu.pt.trace.json.gz")


@pytest.fixture(name="study", scope="module")
def _study():
    return profkit.scaling([TRACES / "ddp_strong_ws1", TRACES / "ddp_strong_ws2"])


def test_the_public_names_are_listed_and_nothing_else():
    assert {"triage", "compare", "scaling", "read_trace", "read_traces"} <= set(dir(profkit))
    assert {name for name in dir(profkit) if not name.startswith("_")} == set(profkit.__all__)
    assert "triage" in loaded_after("import profkit; print(*dir(profkit))")
    assert not {"numpy", "msgspec"} & loaded_after("import profkit; dir(profkit)")


@pytest.mark.parametrize("name", ["triage", "scaling", "read_trace", "read_traces"])
def test_functions_are_typed_and_show_an_example(name):
    function = getattr(profkit, name)
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(one.annotation is not inspect.Parameter.empty for one in signature.parameters.values())
    assert f"profkit.{name}(" in function.__doc__


def test_compare_is_a_function_however_it_was_imported():
    from profkit.compare.paths import compare_paths

    assert "profkit.compare(" in compare_paths.__doc__
    code = (
        "import profkit, profkit.compare.comparison; from profkit import compare;"
        f"a = {str(DATA)!r}; assert compare(a, a).judgement == profkit.compare(a, a, margin=0.02).judgement"
    )
    loaded_after(code)


@pytest.mark.parametrize("call", [profkit.compare, profkit.scaling])
@pytest.mark.parametrize("given", [5, [], [b"x"]])
def test_what_names_no_file_is_refused(call, given):
    with pytest.raises(UsageError, match=r"compare|scaling"):
        call(given)


def test_each_document_is_one_line(report, comparison, study):
    assert repr(report) == "<Report: data-bound: the step waits for its DataLoader: 94.0 % of the window>"
    assert repr(comparison).startswith("<Comparison: inconclusive: unprofiled step: 36.8 -> 17.7 ms")
    assert repr(study) == "<ScalingReport: all runs: E = 0.47 on 2 GPUs>"
    hostile = replace(report, verdict=replace(report.verdict, headline=BAD))
    assert repr(hostile).isprintable()


def test_documents_say_in_a_notebook_what_the_terminal_says(report, comparison, study):
    said = Parsed(report._repr_html_()).text
    for part in (
        "DATA-BOUND",
        "confidence high",
        "A fix saves about 35.5 ms",
        "data 94.0 %",
        report.verdict.next_tool.command,
    ):
        assert part in said
    assert "INCONCLUSIVE" in Parsed(comparison._repr_html_()).text
    assert "0.47" in Parsed(study._repr_html_()).text
    ranks = Parsed(profkit.triage(TRACES / "ddp_straggler_ws4")._repr_html_()).text
    assert "STRAGGLER-BOUND" in ranks
    assert "With rank 0 as fast as its peers" in ranks


def test_what_is_drawn_is_small_whole_and_reaches_for_nothing(report, comparison, study):
    for document in (report, comparison, study):
        html = document._repr_html_()
        parsed = Parsed(html)
        assert len(html) < 16_000
        assert parsed.open == []
        assert set(parsed.tags) <= ALLOWED
        assert parsed.attributes <= {"style", "title"}
        assert "url(" not in html


def test_names_of_strangers_are_text(report):
    verdict = report.verdict
    finding = verdict.findings[0]
    evil = replace(finding, title=BAD, evidence=tuple(replace(one, statement=BAD) for one in finding.evidence))
    rank = replace(
        report.ranks[0],
        source=BAD,
        torch_version=BAD,
        devices=tuple(replace(one, name=BAD) for one in report.ranks[0].devices),
    )
    tool = replace(verdict.next_tool, name=BAD, purpose=BAD)
    hostile = replace(
        report,
        ranks=(rank,),
        verdict=replace(verdict, headline=BAD, findings=(evil,), fixes=(BAD,), next_tool=tool, source=BAD),
    )
    parsed = Parsed(html_of(hostile))
    assert set(parsed.tags) <= ALLOWED
    assert parsed.attributes <= {"style", "title"}
    assert "<script>alert(1)</script>" in parsed.text
    assert not {"\u202e", "\x1b", "\n"} & set(html_of(hostile))


def test_other_documents_are_refused():
    with pytest.raises(TypeError, match="int"):
        html_of(5)


def test_nothing_draws_until_a_notebook_asks(monkeypatch, report):
    assert "xml" not in loaded_after(f"import profkit; profkit.triage({str(DATA)!r})")
    monkeypatch.setattr(shown, "_drawings", [])
    assert report._repr_html_() is None


def test_documents_are_pickled_and_compared_as_values(report):
    assert pickle.loads(pickle.dumps(report)) == report  # noqa: S301 - our own
