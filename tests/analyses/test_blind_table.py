"""The table of faults, rebuilt: an answer is right by the first finding of its headline, and by its line."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from analyses.blind.rounds import HEALTHY, SEEN, SLOW, Found, Look, append
from analyses.blind.table import answers
from analyses.blind.table.answers import HERE, Fault, faults, judge

FAULT = Fault(fault="memory grows", ids=("memory.grows",), lines=("losses.append(",), never="fused=True")
LINE = "at train.py:12 in leak(): losses.append(\n  loss)"
GROWS = Found(id="memory.grows", title="memory grows", about=0.1, at_most=0.2)
BOUND = Found(id="host.launch_bound", title="Python slows", about=0.3, at_most=0.3)
QUIET = Look(look=SEEN, name="leak", side=HEALTHY, date="2026-11-28", commit="0" * 8, exit_code=0)
SAID = replace(QUIET, side=SLOW, headline="memory grows: 10 %", findings=(BOUND, GROWS), screen=LINE)


@pytest.mark.parametrize(
    ("slow", "score"),
    [
        (SAID, "right"),
        (replace(SAID, headline="Python slows; memory grows"), "partly"),
        (replace(SAID, screen=f"also found: {LINE}"), "partly"),
        (replace(SAID, findings=(BOUND,)), "wrong"),
        (replace(SAID, screen=f"{LINE}, fused=True"), "wrong"),
    ],
)
def test_an_answer_is_right_by_its_first_finding_and_its_line(slow: Look, score: str):
    assert judge("leak", FAULT, slow, QUIET).score == score


def test_the_finding_on_the_twin_is_a_false_alarm():
    assert judge("leak", FAULT, SAID, replace(QUIET, findings=(GROWS,))).alarm
    assert not judge("leak", FAULT, SAID, replace(QUIET, findings=(BOUND,))).alarm


def test_without_ids_the_exit_code_is_asked():
    asked = Fault(fault="three steps")
    assert judge("three_steps", asked, SAID, QUIET).score == "right"
    assert judge("three_steps", asked, replace(SAID, exit_code=4), QUIET).score == "wrong"


def test_each_fault_is_a_program_and_each_line_stands_in_it():
    assert len(faults()) == 24
    for name, fault in faults().items():
        text = (HERE / f"{fault.script}.py").read_text()
        assert f"def {name}(" in text
        assert [part for part in fault.lines if part not in text] == [] or name == "restarted"


def test_the_section_says_that_it_is_regression_and_what_the_first_answers_were(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(answers, "LOOKS", tmp_path / "looks.jsonl")
    assert not answers.part()
    for look in (replace(SAID, findings=(BOUND,)), QUIET, SAID):
        append(answers.LOOKS, look)
    said = answers.part()
    assert "regression, not first looks" in said
    assert "First answers: right 0 % (0 of 1" in said
    assert "Newest ones, as below: right 100 % (1 of 1" in said
