"""Twenty questions about six captures, answered from `-f agent` alone: the right number, and its id in the JSON."""

import json
from collections.abc import Callable

import pytest

from profkit.render import renderer_for
from tests.render.agent.pages import at
from tests.render.agent.questions import CAPTURES, QUESTIONS, answer, page_of, report_on


@pytest.mark.parametrize(("name", "question", "path", "truth"), QUESTIONS)
def test_the_page_answers(name: str, question: str, path: str, truth: Callable[[], float | str]) -> None:
    told = answer(page_of(name), question)
    assert told.id == path
    document = json.loads(renderer_for("triage", "json")(report_on(name)))
    right = truth()
    assert at(document, told.id) == (right if isinstance(right, str) else pytest.approx(right, rel=1e-6))
    assert told.value == right if isinstance(right, str) else float(told.value) == pytest.approx(right, rel=1e-5)


def test_there_are_twenty_about_six_captures() -> None:
    assert len(QUESTIONS) == 20
    assert {name for name, *_ in QUESTIONS} == set(CAPTURES)
