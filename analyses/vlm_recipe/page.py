"""What the study's README shows between its marks, for each device: ladder, single layers, traps, and their charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from analyses.lab import table
from analyses.svg import Axes, Point, Series, bar_chart, scatter_chart

Result = Mapping[str, Any]


def text(results: Mapping[str, Result]) -> str:
    """Gives the results of each device as Markdown."""
    parts: list[str] = []
    for device, result in results.items():
        parts += [f"### {device_title(device, result)}", "", *_of_device(device, result)]
    return "\n".join(parts)


def device_title(device: str, result: Result) -> str:
    """Gives the heading of a device's results."""
    what = f"{result['cores']} cores" if device == "cpu" else result.get("gpu") or "one GPU"
    least, most = min(cell["n"] for cell in result["cells"]), max(cell["n"] for cell in result["cells"])
    return f"Here: {what}, {most if least == most else f'{least} to {most}'} runs per cell"


def _of_device(device: str, result: Result) -> Iterable[str]:
    for stage in _stages(result):
        yield f"Stage {stage}, {'projector' if stage == 1 else 'projector and LoRA'}:"
        yield ""
        yield from ladder(result, stage)
    yield f"![The ladder]({device}/ladder.svg)"
    yield f"![Throughput and memory]({device}/pareto.svg)"
    yield ""
    yield from singles(result)
    yield from traps(result)
    yield from surprises(result)
    yield noise(result)
    yield ""


def _stages(result: Result) -> list[int]:
    return sorted({cell["stage"] for cell in result["cells"] if cell["kind"] == "ladder"})


def ladder(result: Result, stage: int) -> Iterable[str]:
    """Gives the rungs of a stage, each against the one it stands on."""
    rows = [
        (
            cell["title"] + ("" if is_kept(result, cell) else " (not kept)"),
            f"{cell['mean']:,.0f}",
            factor(cell),
            f"{cell['of_base']:.2f}x",
            prediction(cell),
            f"{100 * cell['pad_fraction']:.0f} %",
            f"{cell['peak_mem_gb']:.2f} GB",
            verdict(cell),
        )
        for cell in result["cells"]
        if cell["kind"] == "ladder" and cell["stage"] == stage
    ]
    heads = (
        "rung",
        "real tokens/s",
        "of the rung before (95 %)",
        "of the base",
        "predicted at most",
        "padding",
        "peak",
        "verdict",
    )
    yield from table(heads, rows)


def is_kept(result: Result, cell: Result) -> bool:
    """Whether a later rung stands on this one; the top is kept."""
    rungs = [one for one in result["cells"] if one["kind"] == "ladder" and one["stage"] == cell["stage"]]
    return cell is rungs[-1] or any(one["against"] == cell["slug"] for one in rungs)


def factor(cell: Result) -> str:
    """Gives the measured factor with its interval."""
    if cell["change"] is None:
        return ""
    made, interval = f"{1 + cell['change']['effect']:.2f}x", cell["factor_interval"]
    return made if interval is None else f"{made} ({interval[0]:.2f} to {interval[1]:.2f})"


def prediction(cell: Result) -> str:
    """Gives the ceiling that the trace of the rung before set, and whether the gain stays below it."""
    if cell["predicted_factor"] is None:
        return ""
    by = ", ".join(f"`{one}`" for one in cell["predicted_by"])
    if cell["predicted_factor"] == 1:
        return f"nothing ({by} silent)" + ("" if cell["is_within"] else ": exceeded")
    return f"{cell['predicted_factor']:.2f}x ({by})" + ("" if cell["is_within"] else ": exceeded")


def verdict(cell: Result) -> str:
    """Gives the verdict of the cell's trace with its line."""
    said = cell["said"]
    if said is None:
        return ""
    where = f": {_code(said['where'])}" if said["where"] else ""
    return said["bottleneck"] + where


def _code(where: str) -> str:
    place = where.partition("():")[0] + "()" if "():" in where else where
    return f"`{place}`"


def singles(result: Result) -> Iterable[str]:
    """Gives each layer alone on the base, and the product of them beside what all together gave."""
    rows = [
        (cell["title"], str(cell["stage"]), f"{cell['mean']:,.0f}", factor(cell), cell["change"]["answer"])
        for cell in result["cells"]
        if cell["kind"] == "single" and cell["change"] is not None
    ]
    if rows:
        yield from table(("one layer alone", "stage", "real tokens/s", "of the base (95 %)", "answer"), rows)
    for one in result["interaction"]:
        parts = ", ".join(f"{_layer(slug)} {value:.2f}x" for slug, value in one["singles"].items())
        yield (
            f"- Stage {one['stage']}: the single gains multiply to {one['product']:.2f}x ({parts}); together they give"
            f" {one['measured']:.2f}x."
        )
    yield ""


def _layer(slug: str) -> str:
    return slug.partition("/")[2].removeprefix("only-")


def traps(result: Result) -> Iterable[str]:
    """Gives the traps beside their healthy twins, and what their traces alone say."""
    rows = [
        (
            cell["title"],
            f"{cell['mean']:,.0f}",
            factor(cell),
            cell["change"]["answer"] if cell["change"] is not None else "",
            ", ".join(f"`{one}`" for one in cell["said"]["findings"]) if cell["said"] else "",
            (cell["said"]["against_truth"] or "as it is") if cell["said"] else "",
        )
        for cell in result["cells"]
        if cell["kind"] == "trap"
    ]
    if rows:
        heads = ("trap", "real tokens/s", "of its twin (95 %)", "answer", "findings of its trace", "against the truth")
        yield from table(heads, rows)


def surprises(result: Result) -> Iterable[str]:
    """Gives the three surprises of the published study, and what came out here."""
    by_slug = {cell["slug"]: cell for cell in result["cells"]}
    disguise, true = by_slug.get("s2/trap-precision"), by_slug.get("s2/precision")
    if disguise and true:
        yield (
            "1. **fp32 in disguise.** Here, with autocast on and its Linear layers in fp32, the job makes"
            f" {factor(disguise)} of the base's tokens; with weights really in bf16 {factor(true)}."
            f" {_named(disguise, 'precision.fallback')}"
        )
    many, few = by_slug.get("s1/fusion") or by_slug.get("s2/fusion"), by_slug.get("s1/few-chunked")
    if many and few:
        yield (
            f"2. **A fused loss that won and lost.** Here the same chunked loss makes {factor(many)} of the tokens at a"
            f" large vocabulary (stage {many['stage']}) and {factor(few)} at 512 words (stage {few['stage']}). One"
            f" trace cannot know the other way to compute a loss; `profkit compare` of both {_read(few)}."
        )
    rows, shards = by_slug.get("s2/cached-features"), by_slug.get("s1/few-shards")
    if rows and shards:
        said = f"The verdict on its trace is {shards['said']['bottleneck']}." if shards["said"] else _NO_TRACE
        yield (
            "3. **Cached features that were slower than computing them.** Here, read row by row in place of a deep"
            f" tower, they make {factor(rows)} of the tokens; converted a shard at a time in place of a small one"
            f" {factor(shards)}. {said}"
        )
    yield ""


_NO_TRACE: Final = "Its trace was not taken."


def _named(cell: Result, finding: str) -> str:
    if cell["said"] is None:
        return _NO_TRACE
    return f"Its trace {'names' if finding in cell['said']['findings'] else 'does not name'} `{finding}`."


def _read(cell: Result) -> str:
    readings = cell["said"]["readings"] if cell["said"] else None
    if readings is None:
        return "was not made"
    return f"reads: {'; '.join(readings)}" if readings else "reads nothing of it"


def noise(result: Result) -> str:
    """Gives what the tables' numbers are worth."""
    wrong = [cell["slug"] for cell in result["cells"] if cell["said"] and cell["said"]["against_truth"]]
    beyond = [cell["slug"] for cell in result["cells"] if cell["is_within"] is False]
    told = sum(cell["said"] is not None for cell in result["cells"])
    return (
        f"Of {told} traces {len(wrong)} say something else than is true of their cell"
        f"{': ' + ', '.join(wrong) if wrong else ''}. Of the gains {len(beyond)} exceed what the trace before allowed"
        f"{': ' + ', '.join(beyond) if beyond else ''}. The highest load average before a run was"
        f" {result['highest_load']:.1f}."
    )


def charts(result: Result) -> dict[str, str]:
    """Gives the charts by file name."""
    return {"ladder.svg": _ladder_chart(result), "pareto.svg": _pareto_chart(result)}


def _ladder_chart(result: Result) -> str:
    rungs = [cell for cell in result["cells"] if cell["kind"] == "ladder"]
    names = list(dict.fromkeys(cell["slug"].partition("/")[2] for cell in rungs))
    series = [
        Series(
            name=f"stage {stage}",
            points=tuple(
                Point(
                    x=names.index(cell["slug"].partition("/")[2]),
                    y=cell["mean"],
                    low=cell["lowest"],
                    high=cell["highest"],
                )
                for cell in rungs
                if cell["stage"] == stage
            ),
        )
        for stage in _stages(result)
    ]
    axes = Axes(title="The ladder, rung by rung", x_label="bars: lowest and highest run", y_label="real tokens/s")
    return bar_chart([_SHORT.get(name, name) for name in names], series, axes)


_SHORT: Final = {"no-checkpointing": "no ckpt", "cached-features": "cached", "precision": "bf16"}


def _pareto_chart(result: Result) -> str:
    series = []
    for stage in _stages(result):
        mine = [cell for cell in result["cells"] if cell["stage"] == stage and "few" not in cell["slug"]]
        series.append(Series(name=f"stage {stage}", points=tuple(_point(cell) for cell in mine)))
        front = sorted((cell for cell in mine if cell["slug"] in result["front"][str(stage)]), key=_memory)
        series.append(Series(name=f"front {stage}", points=tuple(_point(cell) for cell in front), is_guide=True))
    axes = Axes(title="Throughput against memory", x_label="peak memory, GB", y_label="real tokens/s")
    return scatter_chart(series, axes)


def _memory(cell: Result) -> float:
    return float(cell["peak_mem_gb"])


def _point(cell: Result) -> Point:
    return Point(x=_memory(cell), y=cell["mean"], low=cell["lowest"], high=cell["highest"])


def summary(results: Mapping[str, Result]) -> str:
    """Gives the same for a terminal."""
    lines: Sequence[str] = text(results).splitlines()
    return "\n".join(line for line in lines if not line.startswith("!["))
