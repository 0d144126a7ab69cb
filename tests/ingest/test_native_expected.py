"""What the scanner expects of an event by the one before is read as it stands: keys, space, digits, categories."""

import random
from collections import Counter

import pytest

from tests.conftest import examples
from tests.ingest.both_ways import decoded_both_ways, needs_library, reason

SPACES = ("", " ", "\n    ", "\r\n", "\t", "\n" + " " * 17)
CATEGORIES = (
    *("cpu_op", "cpu_opx", "cpu_o", "kernel", "kernels", "cuda_runtime", "ac2g", "fwdbwd", "gpu_memcpy"),
    "user_annotation",
)
ARGUMENTS = (
    *("External id", "External ids", "External", "correlation", "correlatiom", "stream", "device", "bytes"),
    *("Sequence number", "Fwd thread id", "Ev Idx", "e" * 80, "e" * 79, "grid", "a"),
)
PHASES = ("X", "X", "X", "X", "s", "f", "i", "M", "C", "B")


def digits(rng: random.Random, most: int) -> str:
    n = rng.choice((1, 1, 2, 3, 7, 8, 9, 15, 16, 17, 18, 19, 20, 23, 24, 25, 60, 70))
    return str(rng.randrange(10 ** min(n, most)))


def time(rng: random.Random) -> str:
    """A time, mostly one that a profiler writes."""
    told = digits(rng, 15)
    if rng.random() < 0.4:
        told += "." + "".join(rng.choices("0059", k=rng.choice((1, 2, 3, 3, 3, 4, 5, 8, 9))))
    return told if rng.random() < 0.97 else odd(rng, told)


def odd(rng: random.Random, told: str) -> str:
    """What is no plain number."""
    before, behind = (
        rng.choice(("-", "0", "-0", "00", "")),
        rng.choice(("", "", "e5", "E-2", ".5e1", ".", "e", "x", "\u00e9")),
    )
    return before + told + behind


def value(rng: random.Random, key: str) -> str:
    if key == "ph":
        return f'"{rng.choice(PHASES) if rng.random() < 0.995 else rng.choice(("XX", ""))}"'
    if key == "cat":
        return f'"{rng.choice(CATEGORIES)}"'
    if key == "name":
        return '"' + rng.choice(("aten::mm", "aten::t", "m" * rng.randrange(40), "a\\u0041", "\u00e9")) + '"'
    if key in {"ts", "dur"}:
        return time(rng)
    kind = rng.random()
    if kind < 0.01:
        return rng.choice(
            ('"stream 7"', "null", "true", "[1, 2, 3]", '{"a": [1, {"b": "}"}]}', '"a\\"b"', "[]", time(rng))
        )
    return odd(rng, digits(rng, 25)) if kind < 0.02 else digits(rng, 9 if kind < 0.9 else 18)


def member(rng: random.Random, key: str, told: str, space: str) -> str:
    return f'{space}"{key}"{rng.choice(("", "", "", " "))}:{rng.choice((" ", " ", " ", "", space))}{told}'


def shape(rng: random.Random) -> tuple[list[str], list[str], str]:
    """Members, arguments and the space between them, as one kind of event has them."""
    keys = [
        "ph",
        *rng.sample(("cat", "name", "pid", "tid", "ts", "dur", "args", "id", "bp", "z"), rng.randrange(6, 11)),
    ]
    if rng.random() < 0.2:  # the phase is not the first, as Kineto writes it
        rng.shuffle(keys)
    if rng.random() < 0.1:
        keys += [f"more {n}" for n in range(12)]
    return keys, rng.sample(ARGUMENTS, rng.randrange(len(ARGUMENTS))), rng.choice(SPACES)


def event(rng: random.Random, keys: list[str], arguments: list[str], space: str) -> str:
    kind = rng.random()
    if kind < 0.01:
        keys = [*keys, rng.choice(keys)]
    elif kind < 0.02:
        arguments = [*arguments, *arguments[:1]]
    elif kind < 0.025:
        keys = ["p\\u0068" if key == "ph" else key for key in keys]
    elif kind < 0.3:
        space = rng.choice(SPACES)
    args = ",".join(member(rng, key, value(rng, key), space) for key in arguments)
    told = {"args": "{" + args + rng.choice(("", space)) + "}"}
    return "{" + ",".join(member(rng, key, told.get(key) or value(rng, key), space) for key in keys) + space + "}"


def array(rng: random.Random) -> bytes:
    shapes = [shape(rng) for _ in range(rng.randrange(1, 4))]
    events = [event(rng, *rng.choice(shapes)) for _ in range(rng.choice((1, 2, 3, 5, 9)))]
    return ("[" + rng.choice((",", ", ", ",\n")).join(events) + "]").encode()


@needs_library
@pytest.mark.parametrize("seed", range(examples(4)))
def test_expected_keys_digits_and_categories_are_read_as_they_stand(seed: int) -> None:
    rng, told = random.Random(seed), Counter[str]()  # noqa: S311
    for _ in range(250):
        text = array(rng)
        for is_strict in (False, True):
            by_scanner, plain = decoded_both_ways(text, unique_keys=is_strict)
            assert by_scanner == plain, text
            told[reason(text, unique_keys=is_strict)] += 1
    assert told["taken"] > 30  # what steps aside says nothing
