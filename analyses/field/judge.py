"""Ask profkit about all captures of the registry that lie in a folder, and score what it says.

python -m analyses.field.judge FOLDER [--batch NAME] [--look first|seen] [--keep results.jsonl]

It fetches nothing. A first look counts: it is kept with its date and the commit of profkit, and is never taken again;
what was seen once is regression, and is told apart.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from analyses.field import kernels, score
from analyses.field.registry import HERE, Batch, Capture, Pair, read_registry
from analyses.field.score import PairScore, Verdict

RESULTS: Final = HERE / "results.jsonl"
_TIMEOUT_S: Final = 300


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of profkit, kept for ever."""

    batch: str
    look: str
    """"first" or "seen"."""
    date: str
    commit: str
    verdict: Verdict | None = None
    pair: PairScore | None = None
    launches: tuple[kernels.LaunchScore, ...] = ()


def asked(tree: Path, *words: str) -> dict[str, Any] | None:
    """The JSON that a command of the profkit in a checkout prints; None where it refuses or fails, which is said."""
    line = [sys.executable, "-m", "profkit", *words, "-f", "json"]
    env = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(line, capture_output=True, timeout=_TIMEOUT_S, check=False, cwd=tree, env=env)
    if done.returncode not in {0, 1}:
        print(f"  {' '.join(words[:1])}: exit {done.returncode}: {done.stderr.decode(errors='replace').strip()[:200]}")
        return None
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def of_capture(tree: Path, capture: Capture, paths: Sequence[Path]) -> Verdict:
    """What profkit says of a capture, and what that is worth; a refusal is an open answer that says nothing."""
    with tempfile.TemporaryDirectory() as folder:
        report = asked(tree, "triage", *_apart(paths, Path(folder)))
    if report is None:
        told = score.RIGHT if score.INCONCLUSIVE in capture.verdict and capture.open else score.OPEN
        return Verdict(name=capture.name, score=told, bottleneck="refused", why="refused")
    return score.of_capture(capture, report)


def of_pair(tree: Path, pair: Pair, before: Sequence[Path], after: Sequence[Path]) -> PairScore | None:
    """What profkit says of a pair; None where it refuses one of the two."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        sides = _apart(before, Path(first)), _apart(after, Path(second))
        report = asked(tree, "triage", *sides[0])
        compared = asked(tree, "compare", *_side(sides[0]), *_side(sides[1]))
    return None if report is None or compared is None else score.of_pair(pair, report, compared)


def _side(paths: Sequence[str]) -> list[str]:
    return [str(Path(paths[0]).parent)] if len(paths) > 1 else list(paths)


def _apart(paths: Sequence[Path], folder: Path) -> list[str]:
    """The paths; of several ranks in a folder of their own, since the others beside them are other jobs."""
    if len(paths) == 1:
        return [str(paths[0])]
    for path in paths:
        (folder / path.name).symlink_to(path.resolve())
    return [str(folder / path.name) for path in paths]


def judged(tree: Path, batch: Batch, folder: Path, look: str) -> Iterable[Look]:
    """The answers to all captures and pairs of a batch that lie in a folder."""
    told = {
        "batch": batch.name,
        "look": look,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit_of(tree),
    }
    files = {capture.name: paths for capture in batch.captures if (paths := capture.found(folder))}
    for name, paths in files.items():
        capture = batch.by_name[name]
        if capture.kind == "ncu":
            report = asked(tree, "kernels", str(paths[0]))
            yield Look(**told, launches=kernels.scored(capture, report))
        else:
            yield Look(**told, verdict=of_capture(tree, capture, paths))
    for pair in batch.pairs:
        sides = [files.get(side) for side in (pair.before, pair.after)]
        kinds = {batch.by_name[side].kind for side in (pair.before, pair.after) if side in batch.by_name}
        if all(sides) and "ncu" not in kinds and (found := of_pair(tree, pair, *sides)) is not None:  # type: ignore[arg-type]
            yield Look(**told, pair=found)


def commit_of(tree: Path) -> str:
    """The commit that a checkout stands at, short; empty where `tree` is none."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, check=False, cwd=tree)  # noqa: S607
    return done.stdout.decode().strip()


def summary(looks: Sequence[Look]) -> str:
    """The counts of a run, a line for each kind of score."""
    verdicts = Counter(look.verdict.score for look in looks if look.verdict is not None)
    pairs = [look.pair for look in looks if look.pair is not None]
    launches = Counter(one.score for look in looks for one in look.launches)
    lines = [f"captures   {sum(verdicts.values())}: " + ", ".join(f"{n} {name}" for name, n in verdicts.most_common())]
    silent = [
        look.verdict for look in looks if look.verdict is not None and look.verdict.bottleneck == score.INCONCLUSIVE
    ]
    if silent:
        lines += [f"silent     {sum(one.says_host for one in silent)} of {len(silent)} say what the host did"]
    if pairs:
        advice = Counter(pair.advice for pair in pairs if pair.counts)
        held = [pair.holds for pair in pairs if pair.holds is not None]
        compared = Counter(pair.compare for pair in pairs)
        lines += [
            f"advice     {sum(advice.values())}: " + ", ".join(f"{n} {name}" for name, n in advice.most_common()),
            f"ceilings   {sum(held)} of {len(held)} held",
            f"compare    {len(pairs)}: " + ", ".join(f"{n} {name}" for name, n in compared.most_common()),
        ]
    if launches:
        settled = [one for look in looks for one in look.launches if one.is_settled]
        sound = sum(one.is_sound for one in settled)
        lines += [
            f"launches   {sum(launches.values())}: " + ", ".join(f"{n} {name}" for name, n in launches.most_common()),
            f"settled    {sound} of {len(settled)} follow NVIDIA's largest estimate, or the expert who does not",
        ]
    return "\n".join(lines)


def main() -> int:
    """Judge, print a line for each, keep what is asked to be kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="holds the captures under the names that the registry gives")
    parser.add_argument("--batch", action="append", help="only these files of the registry")
    parser.add_argument("--registry", type=Path, help="another folder of labels")
    parser.add_argument("--tree", type=Path, default=HERE.parents[1], help="the checkout of profkit that is asked")
    parser.add_argument("--look", choices=("first", "seen"), default="seen")
    parser.add_argument("--keep", type=Path, help="append the answers to this file")
    parser.add_argument("--silent", action="store_true", help="the counts alone")
    given = parser.parse_args()
    looks: list[Look] = []
    for batch in read_registry(given.registry) if given.registry else read_registry():
        if given.batch and batch.name not in given.batch:
            continue
        for look in judged(given.tree.resolve(), batch, given.folder.resolve(), given.look):
            looks.append(look)
            if given.keep is not None:
                with given.keep.open("ab") as out:
                    out.write(msgspec.json.encode(look) + b"\n")
            if not given.silent:
                print(line_of(look), flush=True)
    print(summary(looks) if looks else f"no capture of the registry lies in {given.folder}")
    return 0


def line_of(look: Look) -> str:
    """An answer in a line."""
    if look.verdict is not None:
        one = look.verdict
        first = one.findings[0] if one.findings else "-"
        return f"{one.score:7} {one.name:44} {one.bottleneck:16} {one.confidence:.2f} {first:24} {one.why}"
    if look.pair is not None:
        two = look.pair
        ceiling = "-" if two.together is None else f"{two.together:.1%}"
        change = "-" if two.change is None else f"{two.change:+.1%}"
        held = {None: "", True: "held", False: "BELOW"}[two.holds]
        return (
            f"pair    {two.name:44} {two.advice:12} ceiling {ceiling:>7} for {two.saving:6.1%} {held:6}"
            f" compare {two.compare} {change} {two.why}"
        )
    return "\n".join(f"launch  {one.name:44} {one.score:8} {one.said:20} {one.why}" for one in look.launches)


if __name__ == "__main__":
    raise SystemExit(main())
