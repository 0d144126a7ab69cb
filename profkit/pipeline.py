"""The whole flow of one trace on one screen: measure -> judge -> verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from profkit.analyzers import ANALYZERS, quality, roof, steps, streams, whole_run
from profkit.analyzers.base import Analyzer, scope_of
from profkit.analyzers.code import ModuleTree, busiest, question_of
from profkit.analyzers.kernels import Kernels
from profkit.analyzers.launches.measured import Apart, Launches
from profkit.analyzers.roof import for_headline, roof_summary
from profkit.analyzers.steps import StepTimes
from profkit.analyzers.streams import Streams
from profkit.analyzers.tools import metal_timeline, py_spy_operators, steps_alone
from profkit.errors import InternalError, UnsupportedTraceError, UsageError, blamed
from profkit.findings.capture import QUALITY, REFUSING, STARTUP, UNLINKED
from profkit.findings.host import STALL, SYNC
from profkit.findings.input import RESTARTED
from profkit.findings.trainers import setting
from profkit.model.documents.rank_report import Again, DeviceReport, RankReport, Section
from profkit.model.documents.report import Verdict
from profkit.model.finding import SEVERITY_FROM, Finding, NextTool, Severity, Skipped
from profkit.model.names import short_name
from profkit.model.trace import Trace
from profkit.plain import clean
from profkit.redact import redacted_line
from profkit.shell import typed
from profkit.timeline import Facts
from profkit.timeline.clocks import on_one_clock
from profkit.timeline.code import carried, matched, shares
from profkit.timeline.complete import complete
from profkit.timeline.elsewhere import METAL, refuse_drawn
from profkit.timeline.pace import Paced, paced
from profkit.timeline.startup import beside_ranges, settled
from profkit.timeline.whole_run import without_rare
from profkit.units import format_fraction
from profkit.verdict import Case, bounded, capped, decide, in_unprofiled_time, said_once

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code
    from profkit.timeline.code.match import Match

FAULT_CAP: Final = 0.4
"""The most that a verdict may claim where an analyzer failed: what it would have found is not known. Chosen: as for
damaged input."""
PLACES_OF: Final = "profkit_places_of"
"""The key that names the timed trace in that of a capture's second window."""
MOST_NS: Final = 10**18


class Analysed(msgspec.Struct, frozen=True, kw_only=True):
    """One trace with all that was made of it; `results` holds what each analyzer measured, by name, without skips."""

    facts: Facts
    results: dict[str, Any]
    rank: RankReport
    case: Case
    verdict: Verdict
    note: str = ""
    """What was done to the window and the steps, "" for nothing."""


def triage_trace(
    trace: Trace, *, step_range: tuple[int, int] | None = None, command: str | None = None
) -> tuple[RankReport, Verdict]:
    """One rank's measurements and verdict."""
    analysed = alone(analyse(trace, step_range=step_range, command=command))
    return analysed.rank, analysed.verdict


def alone(analysed: Analysed) -> Analysed:
    """What is said of one trace alone: in the time of its steps without the profiler, where the capture knows it."""
    meta = analysed.facts.trace.meta
    verdict, findings = in_unprofiled_time(
        analysed.verdict,
        analysed.rank.findings,
        analysed.case,
        plain_ns=meta.unprofiled_step_ns,
        profiled_ns=meta.profiled_step_ns,
    )
    verdict, findings = bounded(verdict, findings, is_cpu=analysed.case.is_cpu)
    return replace(analysed, verdict=verdict, rank=replace(analysed.rank, findings=findings))


def analyse(
    trace: Trace,
    *,
    step_range: tuple[int, int] | None = None,
    command: str | None = None,
    is_alone: bool = True,
) -> Analysed:
    """Everything that is known of one trace.

    `command` is what the user runs, in place of what the trace says; raises UsageError if it is not one program.
    One of many ranks (not `is_alone`) keeps the steps that its host marked: by these it is matched with the others.
    """
    if command:
        trace = replace(trace, meta=replace(trace.meta, command=redacted_line(typed(command).text)))
    if step_range is not None:
        trace = narrowed(trace, step_range)
    timed = trace.meta.metadata.get(PLACES_OF)
    if isinstance(timed, str):
        raise UnsupportedTraceError(
            f"{trace.meta.source} holds steps recorded with Python stacks: lines of code for {clean(timed)}, no times",
            hint=f"profkit triage on {clean(timed)}, which lies beside it, shows both",
        )
    refuse_drawn(trace)
    with blamed("analysing it", trace.meta.source):
        match = matched(trace)  # by the steps that the host marked
        code = carried(trace, match)
        trace = _with_shapes(trace, match)
        return _analysed(_job_of(trace, is_alone=is_alone), code)


def _job_of(trace: Trace, *, is_alone: bool) -> Paced:
    """The trace with the window and the steps of the job: on one clock, wholly recorded, at the device's pace."""
    cuts = (on_one_clock, beside_ranges, *((without_rare, complete, settled, paced) if is_alone else ()))
    notes = []
    for cut in cuts:
        chosen = cut(trace)
        trace = chosen.trace
        notes.append(chosen.note)
    return Paced(trace, "; ".join(filter(None, notes)))


def _with_shapes(trace: Trace, match: Match | None) -> Trace:
    if match is None:
        return trace
    from profkit.roof.carried import with_shapes  # with all formulas: loaded where there is a second window

    return with_shapes(trace, match)


class _Answer(msgspec.Struct, frozen=True):
    """What one analyzer gives: measured, judged and shown; nothing is judged or shown where it was skipped."""

    result: Any
    findings: tuple[Finding, ...] = ()
    sections: tuple[Section, ...] = ()
    is_fault: bool = False


def _answer(analyzer: Analyzer[Any], facts: Facts) -> _Answer:
    """An analyzer's answer; where it fails for a fault of its own, that it was skipped: the others can go on."""
    try:
        with blamed(f"analysing {analyzer.name}", facts.trace.meta.source):
            result = analyzer.measure(facts)
            if isinstance(result, Skipped):
                return _Answer(replace(result, analyzer=analyzer.name))
            findings = _placed(analyzer, facts, result, analyzer.judge(result))
            return _Answer(result, findings, (replace(analyzer.present(result), analyzer=analyzer.name),))
    except InternalError as told:
        if analyzer.name == quality.ANALYZER.name:  # nothing can be said of a capture that nobody checked
            raise
        return _Answer(Skipped(analyzer=analyzer.name, reason=told.message, how_to_get=told.hint), is_fault=True)


def _placed(analyzer: Analyzer[Any], facts: Facts, result: Any, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings with their places in the user's code, where these are known; those in other processes first."""
    if not findings:
        return findings
    places = dict(analyzer.places(facts, result))
    if facts.code is not None:
        findings = tuple(_in_words_of(facts.code.trainer, one) for one in findings)
        for name, rows in analyzer.rows(facts, result).items():
            places[name] = (*places.get(name, ()), *shares(facts.code, rows))
    return tuple(replace(one, places=places[one.id]) if one.id in places else one for one in findings)


def _in_words_of(package: str, one: Finding) -> Finding:
    """The finding with what to set in the library that runs the loop, where that is known."""
    said = setting(package, one.id)
    return replace(one, fix=f"{said}; else {one.fix}") if said else one


def _analysed(chosen: Paced, code: Code | None) -> Analysed:
    trace = chosen.trace
    facts = Facts.of(trace, code)
    answers = {name: _answer(analyzer, facts) for name, analyzer in ANALYZERS.items()}
    skipped = tuple(answer.result for answer in answers.values() if isinstance(answer.result, Skipped))
    found = {name: answer.result for name, answer in answers.items() if not isinstance(answer.result, Skipped)}
    gate: quality.Quality = found["quality"]
    step_times = steps.summary(_of(found, StepTimes))
    every = [finding for answer in answers.values() for finding in answer.findings]
    findings = _ranked([one for one in every if one.id == QUALITY.id or not gate.is_blind], facts)
    faults = tuple(answer.result.reason for answer in answers.values() if answer.is_fault)
    of_run = whole_run.confidence_cap(_of(found, whole_run.Seen), findings)
    cap = min(quality.confidence_cap(gate), steps.confidence_cap(step_times), of_run, FAULT_CAP if faults else 1.0)
    sections = tuple(section for answer in answers.values() for section in answer.sections)
    rank = RankReport(
        source=trace.meta.source,
        format=trace.meta.traits.format,
        rank=trace.meta.rank,
        world_size=trace.meta.world_size,
        torch_version=trace.meta.torch_version,
        n_events=trace.meta.n_events,
        checks=quality.checks(gate),
        window_ns=trace.window_ns,
        steps=step_times,
        devices=_devices(facts, _of(found, Streams)),
        sections=sections,
        warnings=tuple(warning.message for warning in trace.warnings),
        findings=capped(findings, cap),
        skipped=skipped,
        unprofiled_step_ns=trace.meta.unprofiled_step_ns,
        recorded_command=str(trace.meta.metadata.get("profkit_command") or ""),
        is_command_used=bool(trace.meta.command),
        stand_in=gate.scope.command.words[-1],
        roof=roof_summary(found.get(roof.ANALYZER.name)),
        again=_again(trace, facts),
    )
    case = _case(facts, rank, findings, cap, found)
    notes = (*faults, *filter(None, [chosen.note]), *case.notes)
    case = replace(case, notes=notes, **for_headline(found.get(roof.ANALYZER.name)))
    if case.step_ns is not None and case.rare_ns:
        mean_ns = case.step_ns + case.rare_ns
        findings = tuple(
            one.worth(round(one.fraction * mean_ns)) if one.id == RESTARTED.id else one for one in findings
        )
        rank = replace(rank, findings=capped(findings, cap))
        case = replace(case, findings=findings, step_ns=mean_ns)
    verdict = decide(case)
    if case.question is not None and any(one.id == case.question.id for one in verdict.findings):
        rank = replace(rank, findings=(*rank.findings, *capped([case.question], cap)))
    if not facts.is_of_torch:  # what tries a change or a delay does so in PyTorch
        verdict = replace(verdict, measure=None)
    return Analysed(facts=facts, results=found, rank=rank, case=case, verdict=verdict, note=chosen.note)


def _again(trace: Trace, facts: Facts) -> Again | None:
    """What was recorded once more, and what it cost."""
    if trace.again is None:
        return None
    told = trace.again.meta.metadata
    step_ns, stalled_ns = (told.get(f"profkit_{key}_ns") for key in ("profiled_step_mean", "places_stalled"))
    return Again(
        source=trace.again.meta.source,
        n_steps=len(trace.again.steps),
        mean_step_ns=step_ns if isinstance(step_ns, int) and 0 < step_ns < MOST_NS else 0,
        stalled_ns=stalled_ns if isinstance(stalled_ns, int) and 0 < stalled_ns < MOST_NS else 0,
        matched=facts.code.matched or 0.0 if facts.code is not None else 0.0,
        shapes=trace.shapes_carried,
        is_sampled=trace.again.meta.has_sampled_stacks,
    )


def narrowed(trace: Trace, step_range: tuple[int, int]) -> Trace:
    """The trace with its window cut to steps A to B-1, counted from 0; raises UsageError if there are none."""
    first, stop = step_range
    chosen = trace.steps[first:stop]
    if not chosen:
        raise UsageError(
            f"--step-range {first}:{stop} selects nothing: the trace has {len(trace.steps)} steps",
            hint=f"steps are counted from 0; use --step-range 0:{len(trace.steps)}"
            if trace.steps
            else "leave out --step-range",
        )
    return replace(trace, window_ns=(chosen[0].start_ns, chosen[-1].end_ns))


def _of(found: Mapping[str, Any], kind: type[Any]) -> Any:
    return next((result for result in found.values() if isinstance(result, kind)), None)


def _ranked(findings: list[Finding], facts: Facts) -> tuple[Finding, ...]:
    """The findings, the gravest first; none on what another one names."""
    ranked = sorted(said_once(findings), key=lambda f: (f.severity.rank, -f.fraction))
    return tuple(replace(f, rank=facts.trace.meta.rank) for f in ranked)


def _case(facts: Facts, rank: RankReport, findings: tuple[Finding, ...], cap: float, found: Mapping[str, Any]) -> Case:
    kernels, launches = _of(found, Kernels), _of(found, Launches)
    apart: Apart | None = launches.apart if launches is not None else None
    failed = [check for check in rank.checks if not check.ok]
    gate: quality.Quality = found[quality.ANALYZER.name]
    scope, main = scope_of(facts), facts.main_device
    other_loop, on_other_loop = steps.not_the_job(facts)
    slowing = whole_run.unexplained(_of(found, whole_run.Seen), findings)
    return Case(
        budget=facts.budget,
        step_ns=rank.steps.mean_ns,
        n_steps=facts.n_steps,
        findings=findings,
        failed_checks=tuple(check.message for check in failed),
        refusals=(*(check.message for check in failed if check.id in REFUSING), *filter(None, [other_loop])),
        confidence_cap=cap,
        is_cpu=facts.cpu is not None,
        matrix_share=kernels.tuned_share if kernels is not None else None,
        hottest_kernel_tool=_hottest_tool(kernels),
        hottest=_hottest(kernels),
        busiest=busiest(_of(found, ModuleTree)),
        question=question_of(_of(found, ModuleTree)),
        scope=scope,
        is_unlinked=any(check.id == UNLINKED.id and (check.value or 0) > 0.5 for check in failed),
        rank=rank.rank,
        source=rank.source,
        turnaround_fraction=scope.fraction(main.idle.turnaround.total_ns) if main is not None else 0.0,
        instead=on_other_loop
        or (metal_timeline(scope.command) if gate.unrecorded == METAL else _steps_alone(rank, facts.n_steps)),
        skipped=frozenset(skip.analyzer for skip in rank.skipped),
        not_ruled_out=_not_ruled_out(facts),
        small_work=scope.fraction(facts.cpu.small_work_ns) if facts.cpu is not None else 0.0,
        notes=(*steps.notes(facts), *streams.notes(facts), *quality.notes(gate)),
        slows=slowing.said if slowing is not None else "",
        later=slowing.tool if slowing is not None else None,
        meanwhile=quality.meanwhile(gate),
        **_apart(apart, facts, is_said=any(finding.id == STALL.id for finding in findings)),
    )


def _apart(apart: Apart | None, facts: Facts, *, is_said: bool) -> dict[str, Any]:
    """What is judged apart, as fields of a case; of single stalls that another finding names, nothing."""
    if apart is None or not apart.shows_the_job(facts.window_ns):
        return {"is_steady": apart is None}
    unknown_ns = apart.unknown_ns if is_said else 0
    return {
        "apart": (apart.total_ns - apart.unknown_ns + unknown_ns) / facts.window_ns,
        "unknown_apart": unknown_ns / facts.window_ns,
    }


def _not_ruled_out(facts: Facts) -> frozenset[str]:
    """What holds the host for most of the window, costs too much once later idle time is counted, or was not seen."""
    main = facts.main_device
    if main is None:
        return frozenset({"launches"} if facts.cpu is not None and facts.cpu.has_no_operators else ())
    held = {
        "syncs": (main.gains.held_ns, main.gains.sync_ns),
        "input": (facts.host.loader.total_ns, main.gains.data_ns),
    }
    return frozenset(
        name
        for name, (held_ns, cost_ns) in held.items()
        if held_ns > SYNC.limit("held") * facts.window_ns or cost_ns >= SEVERITY_FROM[Severity.MEDIUM] * facts.window_ns
    )


def _steps_alone(rank: RankReport, n_steps: int) -> NextTool | None:
    """The triage of the steps alone, where nothing else forbids a verdict."""
    refusing = [check.id for check in rank.checks if not check.ok and check.id in REFUSING]
    return steps_alone(rank.source, n_steps) if refusing == [STARTUP.id] else None


def _hottest(kernels: Kernels | None) -> str:
    if kernels is None or not kernels.top or not kernels.work_ns:
        return ""
    first = kernels.top[0]
    return f"{short_name(first.name)} has {format_fraction(first.total_ns / kernels.work_ns)} of their time"


def _hottest_tool(kernels: Kernels | None) -> NextTool | None:
    if kernels is None or not kernels.top:
        return None
    if kernels.scope.is_cpu:
        return py_spy_operators(kernels.scope.command)
    return kernels.top[0].profile(
        kernels.scope,
        "what limits the hottest kernel?",
        "Speed of Light: memory or compute above 80 % means near the roof, both below 60 % mean latency or occupancy",
    )


def _devices(facts: Facts, streams: Streams | None) -> tuple[DeviceReport, ...]:
    named = {device.index: device.name for device in facts.trace.meta.devices}
    if facts.cpu is not None and facts.cpu_budget is not None:
        cpu = facts.cpu
        return (
            DeviceReport(
                device=0,
                name="CPU",
                kind="cpu",
                budget=facts.cpu_budget,
                busy_compute_ns=cpu.compute.total_ns,
                busy_comm_ns=cpu.comm.total_ns,
                busy_copy_ns=0,
                busy_any_ns=(cpu.compute | cpu.comm_exposed).total_ns,
                comm_overlapped_ns=(cpu.comm & cpu.compute).total_ns,
            ),
        )
    return tuple(
        DeviceReport(
            device=device.device,
            name=named.get(device.device, ""),
            kind="gpu",
            budget=device.budget,
            busy_compute_ns=device.activity.compute.total_ns,
            busy_comm_ns=device.activity.comm.total_ns,
            busy_copy_ns=device.activity.copy.total_ns,
            busy_any_ns=device.activity.any.total_ns,
            comm_overlapped_ns=(device.activity.comm & device.activity.compute).total_ns,
            streams=streams.by_device.get(device.device, ()) if streams is not None else (),
            n_streams=streams.n_by_device.get(device.device, 0) if streams is not None else 0,
        )
        for device in facts.devices
    )
