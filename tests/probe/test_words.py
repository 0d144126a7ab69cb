"""What a probe says: one sentence for the host, the parts that differ, and what an interval cannot tell."""

from msgspec.structs import replace

from profkit.render.words import probe as words
from tests.probe.drawn import probed, slope


def named(place, value, half):
    return replace(slope(value, half), place=place)


def test_a_host_that_is_known_speaks_for_its_parts():
    parts = {"input": slope(0, 0.1), "forward": slope(1, 0.3), "backward": slope(0.9, 0.6), "optimizer": slope(0, 0.2)}
    report = replace(probed(**parts), host=named("host", 0.95, 0.1))
    assert [one.place for one in words.told(report)] == ["input", "optimizer", "host"]
    assert words.headline(report).startswith("on the critical path: host; per step")


def test_without_it_every_place_speaks():
    report = replace(probed(input=slope(1, 0.2), forward=slope(0, 0.1)), host=named("host", 0.5, 0.7))
    assert [one.place for one in words.told(report)] == ["input", "forward"]
    assert "on the critical path: input" in words.headline(report)
    assert words.headline(probed(input=slope(0, 0.1))).startswith("every probed place is hidden")
    assert words.headline(probed(input=slope(0.5, 0.7))).startswith("inconclusive")


def test_readings_are_said_in_plain_words():
    assert words.sentence(named("input", 0.97, 0.1)) == (
        "input (fetching a batch) is on the critical path: each 1 ms saved there shortens the step by about 0.97 ms"
    )
    assert words.sentence(named("input", 0.0, 0.1)).endswith(
        "is hidden: saving time there does not shorten the step; it could take at least 4.00 ms longer for free"
    )
    assert words.sentence(named("rank3", 0.4, 0.7)).startswith(
        "rank3 (rank 3 alone) is inconclusive: its interval contains both 0 and 1; about "
    )
    assert "even 10,000 more would not settle it" in words.sentence(named("input", 0.4, 9.0))


def test_the_sum_says_what_it_checks():
    report = probed(input=slope(1, 0.1))
    assert words.total(report).endswith("1 is expected")
    for total, ends, said in (
        (0.5, (0.4, 0.6), "something that was not probed"),
        (1.6, (1.4, 1.8), "several places are critical at once"),
        (1.0, (0.2, 1.8), "too wide to check anything"),
    ):
        assert said in words.total(replace(report, total=total, total_interval=ends))
    assert not words.total(replace(report, total=None, total_interval=None))
