"""The tables that stand in the study's README, between two marks; all else there is written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from analyses.fsdp_scaling.here import told_setup

BEGIN: Final = "<!-- results: written by run.py -->"
END: Final = "<!-- end of results -->"


def put_between_marks(path: Path, text: str) -> None:
    """Replaces what stands between the marks of a file; raises ValueError if it has none."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path.name} has no line {BEGIN!r} or {END!r}")
    path.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


def results_text(results: dict[str, Any]) -> str:
    """Gives both studies as Markdown."""
    published, here = results["published"], results["here"]
    parts = []
    if published is not None:
        parts += ["### Published: 2, 4, 8 V100", "", *_scaling(published["scaling"]), *_sentences(published)]
    parts += [f"### Here: {here['cores']} cores, {here['blocks']} runs per cell", "", *_cells(here), *_changes(here)]
    parts += [_noise(here), ""]
    return "\n".join(parts)


def _noise(here: dict[str, Any]) -> str:
    difference = here["largest_loss_difference"]
    losses = "are equal to the six digits written" if difference == 0 else f"lie within {difference:.0e} of each other"
    return (
        f"Noise: the median cell varies by {100 * here['noise_cv']:.1f} % from run to run (cv); what two samples of one"
        " cell differ by stands above as *the same once more*. The highest load average before a run was"
        f" {here['highest_load']:.1f}. The final losses of all runs {losses}: every cell did the same work."
    )


def _scaling(document: dict[str, Any]) -> Iterable[str]:
    rows = [
        (
            series["name"].replace("activation_ckpt=", "checkpointing "),
            str(point["gpus"]),
            str(point["n"]),
            f"{point['mean']:,.0f}",
            "" if point["cv"] is None else f"{100 * point['cv']:.1f} %",
            f"{point['speedup']:.2f}x",
            "" if point["efficiency"] is None else f"{point['efficiency']:.2f}",
            _interval(point["efficiency_interval"]) + " (pilot)" * point["is_pilot"],
            "" if point["memory_bytes"] is None else f"{point['memory_bytes'] / 1e9:.2f} GB",
        )
        for series in document["series"]
        for point in series["points"]
    ]
    yield from _table(("series", "GPUs", "runs", "tokens/s", "cv", "speed-up", "E", "95 %", "peak"), rows)
    yield ""


def _sentences(published: dict[str, Any]) -> Iterable[str]:
    for series in published["scaling"]["series"]:
        yield f"- {series['name']}: base **{series['standing']}**. To publish: {series['sentence']}."
    prefetch = published["prefetch"]
    yield f"- forward prefetch, {prefetch['configuration']}: **{prefetch['answer']}**. {prefetch['sentence']}."
    yield ""


def _cells(here: dict[str, Any]) -> Iterable[str]:
    base = {cell["checkpointed"]: cell["mean"] for cell in here["cells"] if cell["ranks"] == 1}
    rows = [
        (
            str(cell["ranks"]),
            "yes" if cell["checkpointed"] else "no",
            "yes" if cell["prefetched"] else "no",
            str(cell["n"]),
            f"{cell['mean']:,.0f}",
            f"{cell['lowest']:,.0f} to {cell['highest']:,.0f}",
            f"{100 * cell['cv']:.1f} %",
            f"{cell['mean'] / base[cell['checkpointed']]:.2f}x",
        )
        for cell in here["cells"]
    ]
    heads = ("ranks", "checkpointing", "prefetch", "runs", "tokens/s", "lowest to highest", "cv", "of 1 rank")
    yield from _table(heads, rows)
    yield ""


def _changes(here: dict[str, Any]) -> Iterable[str]:
    rows = []
    for change in here["changes"]:
        n_ranks, is_checkpointed, is_prefetched = change["setup"]
        interval, detectable = change["interval"], change["minimum_detectable_effect"]
        rows.append(
            (
                change["what"],
                told_setup(change["what"], (n_ranks, is_checkpointed, is_prefetched)),
                f"{100 * change['effect']:+.1f} %",
                "" if interval is None else f"{100 * interval[0]:+.1f} to {100 * interval[1]:+.1f} %",
                "" if change["p_value"] is None else f"{change['p_value']:.2g}",
                "" if detectable is None else f"{100 * detectable:.0f} %",
                change["answer"],
            )
        )
    yield from _table(("what", "where", "change", "95 %", "p", "detectable", "answer"), rows)
    yield ""


def _interval(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
