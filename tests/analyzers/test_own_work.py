"""The script's own operators at one place, which no layer of a model consists of, are asked about."""

import pytest
from msgspec.structs import replace

from profkit.analyzers.code.asked import own_work
from profkit.analyzers.code.tree import _at, work_rows
from profkit.model.documents.report import Verdict
from profkit.model.trace import Trace
from profkit.pipeline import analyse
from profkit.testing import Row, operator, span, trace_of
from profkit.timeline import Facts
from profkit.timeline.code import code_of

US = 1000
START = 10**9
STEP_US = 10_000
N_STEPS = 6


def frame(name: str, first: int, last: int) -> Row:
    return span(name, START + first * US, START + last * US, cat="python_function")


def verdict(*own: tuple[int, str, int], calls: str = "") -> Verdict:
    return analyse(drawn(*own, calls=calls)).verdict


def drawn(*own: tuple[int, str, int], calls: str = "") -> Trace:
    """Of steps of 10 ms: operators that a function calls (line, name, us), and a layer for the rest."""
    rows, lines = [frame("train.py(90): <module>", -9, N_STEPS * STEP_US), frame("torch/p.py(1): start", -8, -7)], {}
    for number in range(N_STEPS):
        at = number * STEP_US
        rows += [span(f"ProfilerStep#{number}", START + at * US, START + (at + STEP_US) * US)]
        rows += [frame("train.py(12): step", at + 10, at + 9990)]
        end, now = at + 35 + sum(took + 10 for _, _, took in own), at + 30
        rows += [frame("train.py(30): penalty", at + 20, end), frame("nn.Module: Linear_0", end + 5, at + 9985)]
        lines |= {at + 20: 13, end + 5: 14}
        rows += [operator("aten::addmm", START + (end + 10) * US, START + (at + 9980) * US)]
        for line, name, took in own:
            called = calls or f"<built-in method {name.removeprefix('aten::')} of type object at 0x1>"
            rows += [frame(called, now, now + took + 8)]
            rows += [operator(name, START + (now + 4) * US, START + (now + 4 + took) * US)]
            lines[now] = line
            now += took + 10
    began = {"unix_ns": [START + at * US for at in lines], "line": list(lines.values())}
    return trace_of(rows, profkit_call_lines=began, profkit_source_lines={"train.py:31": "far = d.sort()[0]"})


def test_a_line_of_its_own_leads_with_its_operators() -> None:
    found = verdict((31, "aten::sort", 2000), (32, "aten::mul", 300))
    assert found.headline.endswith("20.0 % of the step is at train.py:31 in penalty(), outside the layers of any model")
    first = found.findings[0]
    assert (first.id, found.recoverable_ns) == ("work.line", 0)
    assert first.evidence[0].statement.startswith(
        "of the time at that line (2.00 ms per step), by operator: aten::sort 100.0 %, 1 per step"
    )
    assert first.most_recoverable_ns == 2_000_000
    assert first.evidence[1].value == pytest.approx(1 / 3)
    assert "topk" in first.fix


def test_a_product_in_no_module_is_asked_about_where_the_script_has_modules() -> None:
    assert verdict((31, "aten::mm", 2000)).headline.endswith(
        "at train.py:31 in penalty(), outside the layers of any model"
    )


def test_lines_that_share_it_are_told_as_their_function() -> None:
    found = verdict((31, "aten::sort", 1000), (32, "aten::cumsum", 900))
    assert found.headline.endswith("19.0 % of the step is in penalty() (train.py:30), outside the layers of any model")


@pytest.mark.parametrize(
    ("name", "took", "calls"),
    [
        ("aten::sort", 700, ""),
        ("aten::relu", 2000, ""),
        ("aten::sort", 2000, "nn.Module: Sorted_0"),
        ("aten::mul", 2000, "torch/_tensor.py(500): backward"),
    ],
    ids=["little", "an activation", "a layer", "the backward pass"],
)
def test_what_layers_consist_of_and_little_is_not_asked_about(name: str, took: int, calls: str) -> None:
    assert "outside the layers" not in verdict((31, name, took), calls=calls).headline


def test_samples_of_stacks_hold_no_modules_so_nobody_knows_what_is_outside_them() -> None:
    trace = drawn((31, "aten::sort", 2000))
    code = code_of(trace)
    assert code is not None
    facts, bare = Facts.of(trace, code), replace(code, modules=())
    rows = work_rows(facts)
    moments = _at(code, rows)
    assert own_work(facts, bare, rows, moments) is not None
    sampled = replace(trace, meta=replace(trace.meta, metadata={"profkit_places_sampled": True}))
    again = replace(facts, trace=replace(trace, again=sampled))
    assert own_work(again, bare, rows, moments) is None
