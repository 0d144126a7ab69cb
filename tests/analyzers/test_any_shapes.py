"""Whatever sizes and arguments a file claims, no pattern fails on them."""

import json
import re
from functools import cache, partial
from random import Random
from typing import Any, Final

import pytest

from profkit.analyzers.patterns.by_shapes import BY_SHAPES
from profkit.analyzers.patterns.cost import Pattern
from profkit.analyzers.patterns.measured import PATTERNS
from profkit.pipeline import triage_trace
from profkit.testing import Row, trace_of
from profkit.timeline import Facts
from tests.analyzers import test_smaller as smaller
from tests.analyzers import test_spared as spared
from tests.analyzers.test_thrown import step_of
from tests.drawing import at as operator_at


def looked_up(step: int) -> list[Row]:
    """A table with a dense gradient, which takes all of the optimizer's time."""
    return [
        operator_at(step, "aten::embedding", 10, 20, [(900, 32), (16,), ()]),
        operator_at(step, "aten::embedding_dense_backward", 931, 938, [(16, 32), (16,), ()], ["", "", 900]),
        operator_at(step, "aten::mul_", 941, 949, [(900, 32)]),
        operator_at(step, "aten::_to_copy", 21, 30, [(16, 32), ()], ["", 6]),
    ]


N_SEEDS: Final = 400
MADE: Final = (
    *(partial(smaller.on_gathered, gather=f"aten::{one}") for one in ("index_select", "index", "gather", "repeat")),
    *(smaller.upsampled, smaller.averaged, smaller.pairs, smaller.queue, smaller.masked, smaller.multiplied),
    *(smaller.low_rank, smaller.rolled, looked_up, spared.experts, spared.generated, spared.one_hot),
    *(lambda step: spared.ordered(step, (0, 10)), partial(spared.constant, dims=(32, 32)), step_of),
)
SIZES: Final = (0, 0, 1, 2, 16, 64, -1, 2**40, 2**50)
TEXTS: Final = ("", "0", "-1", "--1", "2", str(2**63 - 1), "9" * 60, "[0]", "[-1]", "[1, 1]", "[0, 0]", "[8, 20, 500]")


def dims(random: Random, given: Any) -> Any:
    """Sizes as a file may claim them: in place of one, none, a list of them, a few more or less."""
    wrong = [random.choice(SIZES) for _ in range(random.choice((1, 2, 3, 4, 70)))]
    at = random.randrange(len(given)) if given else 0
    put = [*given[:at], random.choice((*SIZES, wrong)), *given[at + 1 :]]
    nothing = [0 if isinstance(one, int) else one for one in given]
    return random.choice((put, put, put, nothing, [], given[:-1], given[1:], wrong, [wrong], [given], [[], given]))


def text(random: Random, _: Any) -> str:
    """A value as a file may claim it."""
    return random.choice(TEXTS)


def renumbered(args: dict[str, Any], numbers: dict[str, str]) -> dict[str, Any]:
    """The arguments with other numbers wherever these stand: shapes go on fitting each other."""
    return {
        key: json.loads(re.sub(r"\b\d+\b", lambda found: numbers.get(found[0], found[0]), json.dumps(told)))
        for key, told in args.items()
    }


def damaged(rows: list[Row], random: Random) -> list[Row]:
    """The rows with arguments that no operator takes, mostly the same in each step."""
    told: dict[str, Any] = {}
    share = random.choice((0.0, 0.0, 0.0, 0.05, 0.2, 0.5))
    numbers = re.findall(r"\d+", json.dumps([row.args["Input Dims"] for row in rows if "Input Dims" in row.args]))
    changed = {one: str(random.choice((0, 0, 0, 0, 2**40))) for one in sorted(set(numbers)) if random.random() < 0.5}

    def other(given: Any, wrong: Any) -> Any:
        key = json.dumps(given)
        if key not in told or random.random() < 0.05:
            told[key] = wrong(given) if random.random() < share else given
        return told[key]

    for row in rows:
        if "Input Dims" in row.args:
            args = row.args if share else renumbered(row.args, changed)
            row.args["Input Dims"] = [other(one, partial(dims, random)) for one in args["Input Dims"]]
            row.args["Concrete Inputs"] = [other(one, partial(text, random)) for one in args["Concrete Inputs"]]
            if random.random() < share / 4:
                del row.args["Input Dims"][random.choice((0, 1)) :]
    return rows


@cache
def drawn(seed: int) -> Any:
    random = Random(seed)  # noqa: S311
    made = [random.choice(MADE) for _ in range(random.choice((1, 1, 1, 2)))]
    rows = [row for number in range(3) for row in step_of(number)] if step_of in made else spared.steps(*made)
    return trace_of(damaged(rows, random))


@cache
def facts(seed: int) -> Facts:
    return Facts.of(drawn(seed))


@pytest.mark.parametrize("pattern", [*PATTERNS, *BY_SHAPES], ids=lambda one: one.kind.id)
def test_no_rule_fails_on_hostile_shapes(pattern: Pattern) -> None:
    for seed in range(N_SEEDS):
        one = facts(seed)
        at = pattern.ranges(one)
        if at is not None and at.start_ns.size:
            said = [
                ask(one, at) for ask in (pattern.kept, pattern.title, pattern.proof, pattern.fix) if ask is not None
            ]
            assert all(isinstance(words, str) or 0 <= words <= 1 for words in said), (seed, said)


@pytest.mark.parametrize("seed", range(10))
def test_no_analyzer_is_skipped_for_hostile_shapes(seed: int) -> None:
    rank, _ = triage_trace(drawn(seed))
    assert not [one for one in rank.skipped if "Error" in one.reason]
