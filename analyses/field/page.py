"""Write docs/field.md from the registry and the kept answers.

python -m analyses.field.page [--results results.jsonl] [--docs docs]
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from analyses.accuracy.shares import Share, quantile, share_of
from analyses.accuracy.shown.tables import Table, markdown, share_words
from analyses.field.jobs import Counted
from analyses.field.judge import RESULTS, Look
from analyses.field.registry import HERE, Batch, Capture, read_registry
from analyses.field.score import OPEN, PARTLY, RIGHT, WRONG, is_advisable

DOCS: Final = HERE.parents[1] / "docs"
NAME: Final = "field.md"
JOBS: Final = HERE / "jobs.jsonl"
WORDS: Final = HERE / "page.md"
FIRST, SEEN = "first", "seen"
BEFORE: Final = {"fa30c308": "0.2.0"}
"""Commits of earlier releases: what they said of the same files stands beside, and is no look at today's program."""
_BANDS: Final = ((0.0, 0.5, "below 0.5"), (0.5, 0.7, "0.5 to 0.7"), (0.7, 1.01, "0.7 and more"))


class Wave(msgspec.Struct, frozen=True, dict=True):
    """The answers of one commit to one file of the registry."""

    batch: Batch
    looks: tuple[Look, ...]

    @property
    def name(self) -> str:
        """The file, the day and the commit that was asked."""
        one = self.looks[0]
        return f"{one.batch}, {one.date}, {BEFORE.get(one.commit, one.commit)}"

    @property
    def advised(self) -> list[bool]:
        """Of each change that should have been advised, whether it was, or a larger one."""
        pairs = {pair.name: pair for pair in self.batch.pairs}
        found = [look.pair for look in self.looks if look.pair is not None and is_advisable(pairs[look.pair.name])]
        return [one.advice in {"change", "alternative"} for one in found]

    @property
    def is_before(self) -> bool:
        """Whether an earlier release was asked."""
        return self.looks[0].commit in BEFORE

    @property
    def verdicts(self) -> list[tuple[Capture, str, float]]:
        """Capture, score and confidence of each verdict."""
        found = [look.verdict for look in self.looks if look.verdict is not None]
        return [(self.batch.by_name[one.name], one.score, one.confidence) for one in found]


def read_waves(results: Path, batches: Sequence[Batch]) -> dict[str, list[Wave]]:
    """The kept answers by kind of look: all first looks, and the newest look at what was seen before."""
    by_name = {batch.name: batch for batch in batches}
    grouped: dict[tuple[str, str, str], list[Look]] = {}
    for line in results.read_bytes().splitlines():
        look = msgspec.json.decode(line, type=Look)
        grouped.setdefault((look.look, look.batch, look.commit), []).append(look)
    waves: dict[str, list[Wave]] = {FIRST: [], SEEN: []}
    for (kind, name, _), looks in grouped.items():
        wave = Wave(by_name[name], tuple(looks))
        if kind == SEEN:
            waves[kind] = [one for one in waves[kind] if one.batch.name != name]
        waves[kind].append(wave)
    return waves


def page(waves: dict[str, list[Wave]], batches: Sequence[Batch]) -> str:
    """The page as Markdown."""
    words = dict(_section(text) for text in WORDS.read_text(encoding="utf-8").split("\n## ")[1:])
    first, seen = waves[FIRST], waves[SEEN]
    today = [wave for wave in first if not wave.is_before]
    newest = {wave.batch.name: wave for wave in (*first, *seen)}
    parts = [
        words["head"],
        _headline(today),
        "## First looks\n\n" + words["first"],
        _verdicts(today),
        words["before"],
        _verdicts([wave for wave in first if wave.is_before]),
        "## Files that were seen before\n\n" + words["seen"],
        _verdicts(seen),
        "## Changes that helped\n\n" + words["pairs"],
        _pairs([*first, *seen]),
        "## Kernels under Nsight Compute\n\n" + words["kernels"],
        _launches([*first, *seen]),
        "## Simulated jobs of eight and sixteen ranks\n\n" + words["jobs"],
        _jobs(),
        "## By device and by tool\n\n" + words["kinds"],
        _kinds([*newest.values()], "device", _device),
        _kinds([*newest.values()], "tool", lambda one: one.kind),
        _kinds([*newest.values()], "work", lambda one: one.work),
        "## What a confidence is worth\n\n" + words["confidence"],
        _confidence([*newest.values()]),
        "## What was not right\n\n" + words["misses"],
        _misses([*newest.values()]),
        "## How it is judged\n\n" + words["method"],
        "## Sources\n\n" + words["sources"],
        _sources(batches),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return markdown(Table(title="", head=head, rows=tuple(rows)))


def _section(text: str) -> tuple[str, str]:
    name, _, rest = text.partition("\n")
    return name.strip(), rest.strip()


def _headline(waves: Sequence[Wave]) -> str:
    """What the README says as well: all first looks at today's program together."""
    scores = [score for wave in waves for _, score, _ in wave.verdicts]
    pairs = [look.pair for wave in waves for look in wave.looks if look.pair is not None]
    shares = {
        "verdicts right, or honestly open": [score in {RIGHT, OPEN} for score in scores],
        "right, where it answers": [score == RIGHT for score in scores if score != OPEN],
        "wrong": [score == WRONG for score in scores],
        "first advice is the change that helped, or a larger one": [one for wave in waves for one in wave.advised],
        "“at most” holds what the change saved": [bool(one.holds) for one in pairs if one.holds is not None],
        "two captures compared rightly, or honestly open": [one.compare in {RIGHT, OPEN} for one in pairs],
    }
    return _table(("at first look", "found"), [(name, share_words(share_of(flags))) for name, flags in shares.items()])


def _counted(scores: Iterable[str]) -> tuple[str, ...]:
    count = Counter(scores)
    n = sum(count.values())
    honest = Share(count[RIGHT] + count[OPEN], n)
    return (str(n), *(str(count[name]) for name in (RIGHT, PARTLY, WRONG, OPEN)), share_words(honest))


_HEAD: Final = ("captures", "right", "partly", "wrong", "open", "right or honestly open")


def _verdicts(waves: Sequence[Wave]) -> str:
    rows = [(wave.name, *_counted(score for _, score, _ in wave.verdicts)) for wave in waves if wave.verdicts]
    return _table(("file of labels, day, commit", *_HEAD), rows)


def _pairs(waves: Sequence[Wave]) -> str:
    rows = []
    for wave in waves:
        pairs = [look.pair for look in wave.looks if look.pair is not None]
        if not pairs:
            continue
        bound = [one for one in pairs if one.holds is not None]
        loose = quantile([one.together / one.saving for one in bound if one.together and one.saving > 0], 0.5)
        compared = [one.compare for one in pairs]
        rows.append(
            (
                f"{wave.name} ({'before' if wave.is_before else wave.looks[0].look})",
                share_words(share_of(wave.advised)),
                share_words(share_of([bool(one.holds) for one in bound])),
                "–" if loose is None else f"{loose:.1f}x",
                share_words(share_of([one == RIGHT for one in compared])),
                str(compared.count(WRONG)),
            )
        )
    head = ("file, day, commit (look)", "first advice is the change, or a larger one", "“at most” holds")
    return _table((*head, "it is looser than the gain by (median)", "compare is right", "wrong"), rows)


def _launches(waves: Sequence[Wave]) -> str:
    rows = []
    for wave in waves:
        launches = [one for look in wave.looks for one in look.launches]
        settled = [one.is_sound for one in launches if one.is_settled]
        expert = [bool(one.is_experts) for one in launches if one.is_experts is not None]
        if launches:
            rows.append(
                (
                    f"{wave.name} ({'before' if wave.is_before else wave.looks[0].look})",
                    *map(share_words, map(share_of, (settled, expert))),
                )
            )
    return _table(
        (
            "file, day, commit (look)",
            "NVIDIA's largest global estimate, or the expert's reason",
            "the expert's own first advice",
        ),
        rows,
    )


def _jobs() -> str:
    sets = [msgspec.json.decode(line, type=Counted) for line in JOBS.read_bytes().splitlines()]
    head = (
        "set, day, commit",
        "healthy: nobody is named",
        "one fault: rank and cause",
        "many: all hosts, two faults, pipelines",
    )
    rows = [
        (
            f"{one.name}, {one.date}, {one.commit}",
            *(share_words(Share(*each)) for each in (one.healthy, one.one, one.many, one.holds)),
        )
        for one in sets
    ]
    return _table((*head, "“at most” holds"), rows)


def _device(capture: Capture) -> str:
    """The maker, and of NVIDIA the generation where the name tells it."""
    if capture.vendor != "nvidia":
        return {"amd": "AMD", "apple": "Apple", "cpu": "CPU"}.get(capture.vendor, capture.vendor)
    device = capture.device.partition(" (")[0]  # what follows in brackets may name other devices of the host
    return next((name for word, name in _GENERATIONS if word in device), "NVIDIA, others")


_GENERATIONS: Final = (
    ("Ada", "Ada"),  # before "RTX 50": an RTX 5000 Ada is none of Blackwell's
    *((word, "Blackwell") for word in ("B200", "B300", "GB10", "RTX 50", "5090", "5080")),
    *((word, "Hopper") for word in ("H100", "H200", "H800", "H20", "GH200")),
    *((word, "Ada") for word in ("4090", "4080", "4070", "4060", "L40", "L4")),
    *(
        (word, "Ampere")
        for word in ("A100", "A800", "A10", "A40", "A30", "A4000", "A5000", "A6000", "3090", "3080", "3070", "3060")
    ),
    *(
        (word, "Turing and Volta")
        for word in ("T4", "V100", "2080", "2070", "TITAN RTX", "TITAN V", "1650", "T1000", "RTX 6000")
    ),
    *((word, "Pascal and older") for word in ("P100", "P4", "1080", "1070", "K80")),
)


def _kinds(waves: Sequence[Wave], head: str, kind: Callable[[Capture], str]) -> str:
    scores: dict[str, list[str]] = {}
    for wave in waves:
        for capture, score, _ in wave.verdicts:
            scores.setdefault(kind(capture), []).append(score)
    return _table(
        (head, *_HEAD), [(name, *_counted(scores[name])) for name in sorted(scores, key=lambda k: -len(scores[k]))]
    )


def _confidence(waves: Sequence[Wave]) -> str:
    answers = [(score, sure) for wave in waves for _, score, sure in wave.verdicts if sure > 0]
    rows = [
        (
            name,
            str(len(mine)),
            *(share_words(share_of([one in kept for one in mine])) for kept in ({RIGHT}, {RIGHT, PARTLY})),
        )
        for low, high, name in _BANDS
        if (mine := [score for score, sure in answers if low <= sure < high])
    ]
    return _table(("confidence", "verdicts", "right", "right or partly"), rows)


def _misses(waves: Sequence[Wave]) -> str:
    rows = [
        (
            one.name,
            one.score,
            one.bottleneck,
            ", ".join(one.findings[:1]),
            ", ".join(capture.verdict),
            _first_cause(capture),
        )
        for wave in waves
        for look in wave.looks
        if (one := look.verdict) is not None and one.score in {PARTLY, WRONG}
        for capture in [wave.batch.by_name[one.name]]
    ]
    return _table(("capture", "score", "said", "by", "readers say", "because of"), rows)


def _first_cause(capture: Capture) -> str:
    return next((cause for cause in capture.causes if cause != "none"), "")


def _sources(batches: Sequence[Batch]) -> str:
    rows = [
        (
            one.name,
            f"{one.repository} @ {one.commit[:8]} : {one.paths[0]}",
            one.device,
            one.tool.partition(" (")[0],
            one.licence,
            ", ".join(one.read_by),
        )
        for batch in batches
        for one in batch.captures
    ]
    return _table(("capture", "repository @ commit : path", "device", "tool", "licence", "read by"), rows)


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=DOCS)
    given = parser.parse_args()
    batches = read_registry()
    text = page(read_waves(given.results, batches), batches)
    (given.docs / NAME).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
