"""Blind rounds: what is kept of them reads back, and their scores count what a reader wrote."""

import pytest
from msgspec.structs import replace

from analyses.accuracy.shares import Share
from analyses.accuracy.shown.tables import share_words
from analyses.blind import foreign, page, rounds, score
from analyses.blind.rounds import FIRST, HEALTHY, SEEN, SLOW, Found, Look, Round, Score, Timing, Truth


def truth(true_class: str = "host") -> Truth:
    return Truth(
        kind="a trainer",
        fault="It logs.",
        true_class=true_class,
        right_if_it_says="logging",
        line=("slow.py:1",),
        fix="Log less.",
        expected_gain_percent=40.0,
    )


def look(name: str, *, at_most: float = 0.45, about: float = 0.4, kind: str = FIRST, side: str = SLOW) -> Look:
    found = Found(id="host.logging", title="It logs", about=about, at_most=at_most)
    return Look(
        look=kind,
        name=name,
        side=side,
        date="2026-11-28",
        commit="0" * 8,
        exit_code=0,
        bottleneck="overhead-bound",
        findings=(found,),
    )


def drawn(looks: list[Look], *scores: Score, healthy_s: float = 0.6) -> Round:
    names = [one.name for one in scores]
    turn = {"slow_s": 1.0, "healthy_s": healthy_s, "steps": 10, "load": 0.5}
    return Round(
        number=1,
        truths={name: truth() for name in names},
        timings={name: [Timing(name=name, **turn)] for name in names},
        looks=looks,
        scores={one.name: one for one in scores},
    )


def test_scores_count_what_was_read_and_asked():
    looks = [look("a"), look("a", side=HEALTHY), look("b", at_most=0.3), look("b", side=HEALTHY)]
    said = (
        Score(name="a", score="right", finding="host.logging"),
        Score(name="b", score="partly", finding="host.logging", alarm=True),
        Score(name="not asked", score="right"),
    )
    found = score.scored(drawn(looks, *said))
    assert (found.right.k, found.right.n) == (1, 2)
    assert found.right_or_partly.k == 2
    assert (found.alarms.k, found.alarms.n) == (1, 2)
    assert (found.held.k, found.held.n) == (1, 2)
    assert (found.near.k, found.near.n) == (2, 2)


@pytest.mark.parametrize(("about", "is_near"), [(0.4, 1), (0.31, 1), (0.3, 0), (0.52, 1), (0.53, 0), (0.0, 0)])
def test_about_is_near_within_its_ratio(about, is_near):
    one = drawn([look("a", about=about)], Score(name="a", score="right", finding="host.logging"))
    assert score.scored(one).near.k == is_near


def test_a_dose_that_gains_nothing_has_no_ceiling_to_hold():
    one = drawn([look("a")], Score(name="a", score="right", finding="host.logging"), healthy_s=0.99)
    assert score.scored(one).held.n == 0


def test_a_later_look_never_stands_for_the_first():
    one = drawn([look("a", kind=SEEN), look("b")], Score(name="a", score="right"), Score(name="b", score="wrong"))
    assert one.first("a", SLOW) is None
    assert score.scored(one).right.n == 1


@pytest.mark.parametrize("one", rounds.rounds(), ids=lambda one: f"round {one.number}")
def test_kept_rounds_are_whole(one):
    """Each has a time before it has a look, one first look a side, and a score for each first look or for none."""
    first = [(each.name, each.side) for each in one.looks if each.look == FIRST]
    assert len(first) == len(set(first))
    assert {name for name, _ in first} <= set(one.timings) <= set(one.truths)
    if one.scores:
        assert set(one.scores) == {name for name, side in first if side == SLOW}
        assert {each.score for each in one.scores.values()} <= {"right", "partly", "open", "wrong"}
    for name in one.truths:
        assert (rounds.folder_of(one.number) / name / "healthy.py").exists()


def test_the_readme_has_the_figures_of_the_rounds():
    readme = (rounds.HERE.parents[1] / "README.md").read_text(encoding="utf-8")
    found = [score.scored(one) for one in rounds.rounds() if one.scores]
    each = [str(one.right.k) for one in found]
    assert f"{', '.join(each[:-1])} and {each[-1]};" in " ".join(readme.split())
    for shares in ([one.right for one in found], [one.right_or_partly for one in found]):
        together = Share(k=sum(one.k for one in shares), n=sum(one.n for one in shares))
        assert share_words(together) in readme


def test_the_page_names_every_program_of_a_round_that_was_read():
    said = Score(name="a", score="right", finding="host.logging")
    text = page.part([drawn([look("a")], said), drawn([])])
    assert "`a`" in text
    assert "### Round 1: 1 programs" in text
    assert text.count("### Round") == 1


def test_a_public_script_is_quick_where_it_adds_what_is_promised():
    first = foreign.scripts()[0]
    for under_s, is_quick in ((22.5, True), (22.7, False)):
        one = replace(first, plain_s=(20.0, 25.0), under_s=(30.0, under_s))
        assert one.is_quick is is_quick
        assert f"| {under_s - 20:+.1f} s |" in foreign.part([one])
    assert "| the recorded loop is the training loop | 0 % (0 of 1" in foreign.part(
        [replace(first, is_right_loop=False)]
    )
