"""A report is held beside what its traces give: whichever number of it is changed, the place is named."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.api import triage
from profkit.errors import TraceFormatError
from profkit.render.json.recomputed import ABSENT, NOT_COMPARED, checked, read_document
from profkit.render.json.triage import SCHEMA_ID, render
from tests.golden import GOLDENS, TRACES
from tests.render import reports

REPORTS = {path.stem: json.loads(path.read_text()) for path in sorted(GOLDENS.glob("*.json"))}
REPORTS |= {name: json.loads(render(report)) for name, report in reports.ALL.items()}

Path = tuple[str | int, ...]


def leaves(value: Any, here: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*here, key))
    elif not NOT_COMPARED & set(here):
        yield here, value


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def with_value(document: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


def as_jq(path: Path) -> str:
    steps = [
        f"[{step}]" if isinstance(step, int) else f".{step}" if step.isidentifier() else f"[{json.dumps(step)}]"
        for step in path
    ]
    return "".join(steps)


@st.composite
def changed_numbers(draw: Any) -> tuple[str, Path, Any]:
    """A report, the path of one of its numbers, and another value for it."""
    name = draw(st.sampled_from(sorted(REPORTS)))
    path, value = draw(st.sampled_from([leaf for leaf in leaves(REPORTS[name]) if is_number(leaf[1])]))
    if isinstance(value, int):
        others = st.integers(-(2**70), 2**70) | st.sampled_from([value + 1, value - 1, -value])
    else:
        near = st.sampled_from([1 + 1e-6, 1 - 1e-6, 2.0, -1.0]).map(lambda factor: value * factor)
        others = near | st.floats(allow_nan=False, allow_infinity=False)
    others = (others | st.none() | st.booleans() | st.just(str(value))).filter(
        lambda other: not is_number(other) or abs(other - value) > 1e-7 * max(abs(value), 1e-3)
    )
    return name, path, draw(others)


@given(changed_numbers())
def test_any_changed_number_is_found_where_it_stands(changed: tuple[str, Path, Any]) -> None:
    name, path, value = changed
    answer = checked(with_value(REPORTS[name], path, value), REPORTS[name])
    (difference,) = answer.differences
    assert difference.path == as_jq(path)
    assert difference.said == value
    assert difference.found == dict(leaves(REPORTS[name]))[path]


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_every_text_and_flag_is_compared_too(name: str) -> None:
    document = REPORTS[name]
    for path, value in leaves(document):
        if not is_number(value):
            other = not value if isinstance(value, bool) else f"{value} 7"
            assert [one.path for one in checked(with_value(document, path, other), document).differences] == [
                as_jq(path)
            ]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)


@given(st.dictionaries(st.sampled_from(["ranks", "verdict", "findings", "profkit_version", "x"]), ANYTHING))
def test_whatever_a_file_holds_is_compared(document: dict[str, Any]) -> None:
    """A file of a stranger's: nothing in it ends the comparison."""
    text = json.dumps({"schema": SCHEMA_ID, **document}).replace("Infinity", "1e999")
    said = read_document(text, "r", SCHEMA_ID)
    assert checked(said, REPORTS["data_cpu"]).version == str(json.loads(text).get("profkit_version", "?"))
    assert checked(REPORTS["data_cpu"], said).n_numbers <= checked(said, said).n_numbers


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_a_report_holds_beside_itself_and_its_numbers_are_counted(name: str) -> None:
    answer = checked(REPORTS[name], REPORTS[name])
    found = [value for _, value in leaves(REPORTS[name])]
    assert answer.differences == ()
    assert answer.is_same_version
    assert answer.n_numbers == sum(map(is_number, found))
    assert answer.n_numbers + answer.n_others == len(found)


@pytest.mark.parametrize("path", TRACES[:2], ids=lambda path: path.name.partition(".")[0])
def test_a_report_holds_wherever_its_trace_lies(path: Any) -> None:
    golden = REPORTS[path.name.partition(".")[0]]
    found = json.loads(render(triage([path])))
    assert found["verdict"]["source"] != golden["verdict"]["source"]
    assert checked(golden, found).differences == ()


def test_a_sentence_that_names_the_trace_holds_wherever_it_lies() -> None:
    said, found = (copy.deepcopy(REPORTS["data_cpu"]) for _ in range(2))
    for document, place in ((said, "runs/one.json.gz"), (found, "/elsewhere/two 2.json")):
        document["ranks"][0]["source"] = place
        document["verdict"]["caveats"] = [f"{place} is read", f"{place.rpartition('/')[2]} has 5 steps"]
    assert checked(said, found).differences == ()
    said["verdict"]["caveats"][1] = "one.json.gz has 6 steps"
    assert [one.path for one in checked(said, found).differences] == [".verdict.caveats[1]"]


def test_what_is_missing_or_more_is_found() -> None:
    document = REPORTS["data_cpu"]
    cut = copy.deepcopy(document)
    del cut["verdict"]["step_ns"]
    cut["findings"].append({"id": "host.sync"})
    cut["ranks"][0]["extra"] = 1
    found = {one.path: (one.said, one.found) for one in checked(cut, document).differences}
    assert found[".verdict.step_ns"] == (ABSENT, document["verdict"]["step_ns"])
    assert found[".findings[1]"] == ({"id": "host.sync"}, ABSENT)
    assert found[".ranks[0].extra"] == (1, ABSENT)
    assert len(found) == 3


def test_of_another_version_numbers_count_and_words_do_not() -> None:
    document = REPORTS["data_cpu"]
    other = with_value(document, ("profkit_version",), "0.0.9")
    del other["verdict"]["most_recoverable_ns"]
    other["verdict"]["headline"] = "data takes 94.0 % of the window"
    answer = checked(other, document)
    assert (answer.differences, answer.version, answer.is_same_version) == ((), "0.0.9", False)
    other["verdict"]["headline"] = "data takes 94.1 % of the window"
    other["findings"] = []
    assert [one.path for one in checked(other, document).differences] == [".verdict.headline", ".findings[0]"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no JSON report"),
        ("[1]", "names no schema"),
        ("{}", "names no schema"),
        ('{"schema": 3}', "names no schema"),
        (
            '{"schema": "profkit.compare/1"}',
            r"schema profkit\.compare/1; profkit\.triage/1 can be recomputed from traces",
        ),
        ('{"schema": "profkit.triage/2"}', r"has schema profkit\.triage/2, this profkit reads version 1"),
        ('{"schema": "profkit.triage/1", "a": NaN}', "NaN is no number"),
        ('{"schema": "profkit.triage/1", "a": {"b": 1, "b": 2}}', "has 'b' twice"),
        ("[" * 100_000, "no JSON report"),
        ('{"a": ' + "9" * 5000 + "}", "no JSON report"),
    ],
)
def test_what_cannot_be_recomputed_is_told(text: str, says: str) -> None:
    with pytest.raises(TraceFormatError, match=says):
        read_document(text, "r.json", SCHEMA_ID)
