"""Twenty questions about six captures, asked through `profkit mcp` alone: the right number, and its id.

The reader is that of `-f agent`: it finds the capture in the list, the line in the page, and asks for the evidence
behind the line's id.
"""

from collections.abc import Callable

import pytest

from tests.agents.conftest import Server
from tests.render.agent.questions import CAPTURES, QUESTIONS, answer


@pytest.mark.parametrize(("name", "question", "path", "truth"), QUESTIONS)
def test_the_tools_answer(
    server: Server, name: str, question: str, path: str, truth: Callable[[], float | str]
) -> None:
    captures = server.page("captures").splitlines()
    words = (word.rstrip(":,") for line in captures for word in line.split())
    capture = next(word for word in words if word == CAPTURES[name])
    told = answer(server.page("triage", path=capture), question)
    assert told.id == path
    found = server.call("evidence", path=capture, id=told.id).structured_content
    assert found["id"] == path
    right = truth()
    assert found["value"] == (right if isinstance(right, str) else pytest.approx(right, rel=1e-6))
    assert told.value == right if isinstance(right, str) else float(told.value) == pytest.approx(right, rel=1e-5)


def test_a_comparison_is_asked_and_its_evidence_resolved(server: Server) -> None:
    sides = {"baseline": ["data_cpu.pt.trace.json.gz"], "candidate": ["data_workers2_cpu.pt.trace.json.gz"]}
    told = answer(server.page("compare", **sides), "By how much does waiting for data change?")
    assert told.id == "readings[0].evidence[0]"
    found = server.call("evidence", path=sides["baseline"], candidate=sides["candidate"], id=told.id)
    assert found.structured_content["value"] == float(told.value)
    assert found.structured_content["finding"] == "compare.input"
    (command,) = found.structured_content["recompute"]
    before, after = sides["baseline"][0], sides["candidate"][0]
    assert command == f"profkit compare --baseline {before} --candidate {after} -f json | jq '.{told.id}'"
