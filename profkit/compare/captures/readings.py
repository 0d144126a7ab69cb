"""What the numbers of both sides say of the change: readings, each a finding with its evidence, or nothing at all.

A reading needs a cause that can be seen (a loader of another kind, kernels of another format, recomputed operators)
and an effect of at least 2 % of the step; it names no intention. Of a part that changed without one it is said which
rows moved. Where the amount of work per step differs, every other reading would be of two different things: then that
is the reading.
"""

from __future__ import annotations

from profkit.compare.captures import overlap, parts
from profkit.compare.captures.pair import Pair, counted, part_name, part_shown, reading
from profkit.compare.captures.program import casts, compiled, precision, products, recomputed
from profkit.compare.captures.work import work_changed
from profkit.findings import comparison
from profkit.model.budget import HOST_PARTS
from profkit.model.finding import Evidence, Finding
from profkit.units import format_fraction, format_signed_ns


def readings(pair: Pair) -> tuple[Finding, ...]:
    """What can be read from both sides, the heaviest first."""
    changed = work_changed(pair)
    told = [item for read in (precision, casts, compiled, recomputed, products) if (item := read(pair)) is not None]
    if changed is not None:
        return (changed, *told)
    timed = [item for read in (_loader, _syncs, _host, _slower) if (item := read(pair)) is not None]
    found = (*told, *timed, *overlap.readings(pair))
    rest = parts.readings(pair, {item.id for item in found})
    return tuple(sorted((*found, *rest), key=lambda item: -item.fraction))


def _loader(pair: Pair) -> Finding | None:
    """The input pipeline: data waits changed, or another kind of loader changed nothing."""
    kinds = [
        {trace.counts.loader for trace in side.traces if trace.counts.loader}
        for side in (pair.baseline, pair.candidate)
    ]
    bar = pair.waterfall.bar("idle_data")
    has_effect = abs(pair.fraction(bar.delta_ns)) >= comparison.INPUT.limit("effect")
    is_other_kind = kinds[0] != kinds[1] and all(kinds)
    if not has_effect and not is_other_kind:
        return None
    waits = "falls" if bar.delta_ns < 0 else "rises"
    words = {"single-process": "the training process (num_workers=0)", "workers": "worker processes"}
    told = [" or ".join(words.get(kind, "a custom loader") for kind in sorted(kind)) for kind in kinds]
    evidence = [part_shown(pair, "idle_data")]
    if is_other_kind:
        evidence.append(
            Evidence(
                statement=f"batches are now made in {told[1]}, before in {told[0]}",
                metric="compare.loader_kind_changed",
                value=1.0,
                unit="flag",
            )
        )
    data = part_name(pair, "idle_data")
    title = f"{data} {waits}" if has_effect else f"another kind of loader, but no less {data}"
    return reading(
        comparison.INPUT,
        title,
        fraction=pair.fraction(bar.delta_ns),
        evidence=tuple(evidence),
        fix="to reduce the remaining wait, use more workers or less work per sample"
        if bar.candidate_ns
        else "the input pipeline keeps up now: look for another cause",
        confidence=0.8 if is_other_kind and has_effect else 0.6,
    )


def _syncs(pair: Pair) -> Finding | None:
    before, after = pair.rates(lambda trace: trace.counts.syncs)
    cost = pair.waterfall.bar("idle_sync").delta_ns
    is_changed = max(before, after) >= max(comparison.SYNCS.limit("ratio") * min(before, after), min(before, after) + 1)
    if abs(pair.fraction(cost)) < comparison.SYNCS.limit("effect") or (is_changed and (after > before) != (cost > 0)):
        return None
    often = f"the host waits for the device {'more' if after > before else 'less'} often"
    long = f"the device idles {'longer' if cost > 0 else 'less long'} after calls that wait for it"
    return reading(
        comparison.SYNCS,
        often if is_changed else long,
        fraction=pair.fraction(cost),
        evidence=(
            counted(pair, "calls that wait for the device", "syncs", lambda trace: trace.counts.syncs),
            part_shown(pair, "idle_sync"),
        ),
        fix="look for .item(), .cpu(), nonzero and prints of tensors in the step",
        confidence=0.7 if is_changed else 0.5,
    )


def _host(pair: Pair) -> Finding | None:
    """The reading that the device waits more, or less, for the host to launch."""
    cost = sum(pair.waterfall.bar(name).delta_ns for name in HOST_PARTS)
    if abs(pair.fraction(cost)) < comparison.LAUNCHES.limit("effect") or pair.is_cpu:
        return None
    return reading(
        comparison.LAUNCHES,
        f"the device waits {'longer' if cost > 0 else 'less'} for the host",
        fraction=pair.fraction(cost),
        evidence=(
            part_shown(pair, "idle_launch"),
            part_shown(pair, "idle_host"),
            counted(pair, "launches", "launches", lambda trace: trace.counts.launches),
        ),
        fix="reduce launches with fused kernels or CUDA graphs; if their number is the same, check what else the host"
        " does"
        if cost > 0
        else "to reduce the remaining wait, launch less: fused kernels, CUDA graphs",
        confidence=0.6,
    )


def _slower(pair: Pair) -> Finding | None:
    """The reading that the same rows take longer, or less long, across the board."""
    change = pair.drift
    if change is None:
        return None
    kind = comparison.SLOWER if change.factor > 1 else comparison.FASTER
    if change.covered_ns < kind.limit("matched") * pair.compute.candidate_ns:
        return None
    is_small = abs(change.factor - 1) < kind.limit("slower_cpu" if pair.is_cpu else "slower") or abs(
        pair.fraction(change.cost_ns)
    ) < kind.limit("effect")
    if is_small or change.shared_direction < kind.limit("one_way"):
        return None
    what = "operators" if pair.is_cpu else "kernels"
    return reading(
        kind,
        f"the same {what} take {'longer' if change.factor > 1 else 'less time'}, across the board",
        fraction=pair.fraction(change.cost_ns),
        evidence=(
            Evidence(
                statement=f"the same {what} take {change.factor:.2f}x as long ({change.n_rows:,} rows of"
                f" {change.n_twins:,} kinds, by their medians); {format_fraction(change.shared_direction)} of their"
                " time changed in the same direction",
                metric="compare.same_work_factor",
                value=change.factor,
                unit="ratio",
            ),
            Evidence(
                statement=f"these rows changed by {format_signed_ns(change.cost_ns)} {pair.per}",
                metric="compare.same_work_change_ns",
                value=change.cost_ns,
                unit="ns",
            ),
        ),
        fix="check clocks, power limits, the device and other processes on the cores; run both sides in turns on one"
        " machine",
        confidence=0.7,
    )
