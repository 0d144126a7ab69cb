"""Counts of a script and shapes of its embeddings, by step."""

import json

import pytest

from profkit.ingest.kineto.reader import read_trace
from profkit.ranks.reduce.summary import summarise
from profkit.testing import span, to_json
from profkit.timeline import Facts
from tests.ingest.test_counted_work import counter, embedding


@pytest.fixture
def steps_of(tmp_path):
    def steps(*events):
        rows = [span(f"ProfilerStep#{number}", number * 100_000, (number + 1) * 100_000) for number in range(3)]
        work = [span("aten::mm", at + 10_000, at + 20_000, cat="cpu_op") for at in (0, 100_000, 200_000)]
        document = json.loads(to_json([*rows, *work]))
        document["traceEvents"] += events
        path = tmp_path / "t.json"
        path.write_text(json.dumps(document))
        return summarise(Facts.of(read_trace(str(path)))).steps

    return steps


def test_a_count_belongs_to_the_step_it_was_told_in(steps_of):
    """Told at the end of each step; twice in the second, as with accumulation; before and after, to none."""
    ends = [(-5, 9), (99, 10), (150, 20), (199, 30), (350, 9)]
    steps = steps_of(*(counter("tokens", ts, value) for ts, value in ends), counter("padded_tokens", 99, 16))
    assert steps.tokens.tolist() == [10, 50, 0]
    assert steps.padded_tokens.tolist() == [16, 0, 0]
    assert steps.samples.tolist() == steps.embedded.tolist() == [0, 0, 0]


def test_the_widest_embedding_tells_what_was_padded(steps_of):
    """Tokens of two micro-batches add up; positions, a table of their own, are fewer."""
    words = [embedding(ts, [[8192, 48], [8, 16]]) for ts in (10, 50)]
    steps = steps_of(*words, embedding(12, [[512, 48], [16]]), embedding(110, [[8192, 48], [8, 20]]))
    assert steps.embedded.tolist() == [256, 160, 0]


@pytest.mark.parametrize("value", [1e300, -5])
def test_absurd_counts_stay_numbers(steps_of, value):
    assert steps_of(counter("tokens", 99, value)).tokens.tolist()[0] in (0, 2**53)


@pytest.mark.shared
def test_a_real_embedding_of_16_by_32(shared_traces):
    path = shared_traces / "cpu_captures" / "shapes_w0.pt.trace.json.gz"
    if not path.exists():
        pytest.skip("no such capture here")
    steps = summarise(Facts.of(read_trace(str(path)))).steps
    assert steps.embedded.tolist() == [16 * 32] * 3
    assert not steps.tokens.any()
