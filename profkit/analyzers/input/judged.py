"""Findings on the input pipeline."""

from __future__ import annotations

from collections.abc import Mapping

from profkit.analyzers.base import Analyzer, idle_before
from profkit.analyzers.input.fixes import fix_of
from profkit.analyzers.input.measured import OPERATORS, UNMARKED, InputWaits, measure, waiting_rows
from profkit.analyzers.tools import after_change, py_spy_loader
from profkit.findings.input import KEPT_FIX, RESTARTED, STARVED
from profkit.model.code import OF_THREAD, PlaceShare
from profkit.model.documents.rank_report import Section
from profkit.model.finding import UNSURE, Evidence, Finding
from profkit.model.names import OFF_CORE
from profkit.timeline import Facts
from profkit.timeline.code import Rows
from profkit.units import format_fraction, format_ns

ONCE = "once, not every step"
OS_SHARE = 0.05  # chosen: of the waits, from which calls of the operating system are named
WORTH_A_NAME = 0.01  # chosen: a call below a percent explains nothing
_RANGE = 0.9
_MEANWHILE = 0.75
"""Confidence where no range tells, but what the host does meanwhile: it sleeps, or makes the batch. Chosen."""
_PLACE = 0.55
"""The same where its place alone does: the host may as well be at work of another kind. Chosen."""
_EVEN = 1.5  # chosen: times the mean of the steps that wait; below, no step stands out


def _rows(facts: Facts, _: InputWaits) -> Mapping[str, Rows]:
    return {} if facts.code is None else {STARVED.id: waiting_rows(facts, facts.code)}


def _places(_: Facts, result: InputWaits) -> Mapping[str, tuple[PlaceShare, ...]]:
    """What the workers do meanwhile, where the step waits for them."""
    return {STARVED.id: result.beside} if result.beside and not result.is_handed_over else {}


def judge(result: InputWaits) -> tuple[Finding, ...]:
    """`input.starved` where the device idles for its input, `input.restarted` where workers are started in each epoch."""
    return (*_starved(result), *_restarted(result))


def _restarted(result: InputWaits) -> tuple[Finding, ...]:
    told, step_ns = result.restarts, result.step_ns
    if told is None or told.n < RESTARTED.limit("starts") or not result.n_steps or not step_ns:
        return ()
    n_batches = result.n_waits / result.n_steps if result.loader == "workers" else 1.0
    cost_ns = told.ns / told.n_batches * max(n_batches, 1 / result.n_steps)
    cost_ns = min(cost_ns, told.ns / told.n_steps) if told.n_steps else cost_ns
    usual_ns = min(result.usual_step_ns, step_ns)
    share = cost_ns / (usual_ns + cost_ns)
    if share < RESTARTED.limit("window"):
        return ()
    each = (told.n_steps if told.is_beside else told.n_batches) / told.n
    often = f"every {each:.0f} {'steps' if told.is_beside else 'batches'}" if each >= 1.5 else "with each batch"
    start = f"persistent_workers=True: the {told.n_workers} workers of the DataLoader then live on from epoch to epoch"
    if told.is_rebuilt:
        start = f"build the DataLoader once, before the loop over epochs, with {start}"
    if told.is_beside:
        start = f"{KEPT_FIX}; else {start}"
    return (
        RESTARTED.found(
            title=f"the workers of a DataLoader are started anew {often}" if told.is_beside else "",
            fraction=share,
            confidence=0.85,
            recoverable_ns=round(share * step_ns),
            evidence=(
                Evidence.time(
                    "input.restart_ns",
                    told.ns,
                    f"workers were started {told.n:,} times after the first, {often}; each time the loop"
                    f" waits {format_ns(told.ns // told.n)}: {format_ns(round(cost_ns))} per step",
                ),
            ),
            fix=start,
        ),
    )


def _starved(result: InputWaits) -> tuple[Finding, ...]:
    scope = result.scope
    fraction = scope.fraction(result.idle_ns)
    if fraction < STARVED.limit("window") or _is_handover(result):
        return ()
    idle = scope.time(result.idle_ns)
    who = (
        f"the training thread waits {idle} for" if scope.is_cpu else f"the GPU is idle {idle} while the host waits for"
    )
    what = "its input" if result.loader in ("custom", OF_THREAD) else "the DataLoader"
    if result.loader == UNMARKED:
        who, what = f"the GPU is idle {idle} before", "batches are copied to it, while the host calls nothing"
    if result.loader == OPERATORS:
        who, what = f"the GPU is idle {idle} while", "operators on the CPU make the batch that is then copied to it"
    evidence = [
        Evidence.time(
            "budget_ns.idle_data",
            result.idle_ns,
            f"{who} {what} ({scope.share(result.idle_ns, 'idle_data')} of the window)",
            expected=f"< {format_fraction(STARVED.limit('window'))} of the window",
        ),
        Evidence.time("input.waited_ns", result.waited_ns, _lengths(result), span_ns=result.longest_span_ns),
        *_handed(result),
        *_repeats(result),
        *_in_system(result),
        _pattern(result),
        *idle_before(result.places, scope, "idle_data"),
    ]
    title = STARVED.title if result.loader in {"single-process", "workers"} else "the step waits for its input"
    if result.loader == OPERATORS:
        title = "the step makes its input by operators on the CPU"
    slow = result.slow_worker
    if result.is_handed_over:
        title = f"the step waits for its DataLoader to hand over {result.handed.n:,} tensors for each batch"
    elif result.feeders:
        title = f"the step waits for the thread {result.feeders[0].shown}, which makes its batches"
    elif slow is not None and slow.n_batches > 1:
        title = f"the step waits for one slow worker of its DataLoader, number {slow.number}"
    is_once = result.top_step_share >= STARVED.limit("once") and scope.n_steps > 2
    return (
        STARVED.found(
            title=f"{title} {ONCE}" if is_once else title,
            confidence=(UNSURE if is_once else _confidence(result)) - (0 if scope.has_steps else 0.15),
            recoverable_ns=scope.per_step(result.saved_ns),
            most_recoverable_ns=scope.per_step(result.gain_ns) if result.saved_ns < result.gain_ns else None,
            fraction=fraction,
            evidence=tuple(evidence),
            fix=fix_of(result),
            next_tools=(
                after_change(scope, "this finding gone")
                if result.loader == OPERATORS
                else py_spy_loader(scope.command),
            ),
        ),
    )


def _confidence(result: InputWaits) -> float:
    """How sure it is that the host waits for input: by ranges, by what it does meanwhile, or by its place alone."""
    if result.is_late_for_cores and not result.is_handed_over:
        return UNSURE  # other programs may be what makes batches late
    if result.loader not in (OPERATORS, UNMARKED):
        return _RANGE
    is_asleep = 2 * sum(spent for _, spent in result.os_waits) >= result.waited_ns
    return _MEANWHILE if is_asleep or result.loader == OPERATORS else _PLACE


def _is_handover(result: InputWaits) -> bool:
    """Whether the step only takes over, on a CPU, what workers have ready: all waits are about as long as the shortest."""
    if result.is_handed_over or not (result.scope.is_cpu and result.loader == "workers" and result.has_time_left):
        return False
    return result.scope.fraction(result.idle_ns - result.n_waits * result.shortest_ns) < STARVED.limit("window")


def _handed(result: InputWaits) -> list[Evidence]:
    """What the waiting thread does with a batch of many tensors."""
    handed = result.handed
    if not result.is_handed_over:
        return []
    each_ns = handed.ns // (handed.n * result.n_waits)
    said = (
        f"for {format_fraction(handed.ns / result.waited_ns)} of these waits the batch is there, and the thread takes"
        f" over its {handed.n:,} tensors one by one, {format_ns(each_ns)} for each: every tensor comes in shared memory of its own"
    )
    return [Evidence.count("input.n_handed", handed.n, said, expected=f"< {STARVED.limit('tensors'):.0f}")]


def _in_system(result: InputWaits) -> list[Evidence]:
    """What the waiting thread does in the operating system meanwhile."""
    total = sum(spent for _, spent in result.os_waits)
    if not result.waited_ns or total < OS_SHARE * result.waited_ns:
        return []
    parts = [(name, spent / result.waited_ns) for name, spent in result.os_waits[:3]]
    named = ", ".join(f"{name} takes {format_fraction(share)}" for name, share in parts if share >= WORTH_A_NAME)
    statement = f"of these waits, {named}: calls of the operating system"
    if parts[0][0] == OFF_CORE:
        statement = (
            f"for {format_fraction(parts[0][1])} of these waits the thread has no core: it sleeps until another thread,"
            " a process or a disk is ready"
        )
    return [Evidence.time("input.os_wait_ns", total, statement)]


def _repeats(result: InputWaits) -> list[Evidence]:
    """That each worker makes the samples of all and drops those that are not its own."""
    told = result.repeated
    if told is None or not result.is_repeating:
        return []
    said = (
        f"{told.place.name} runs {told.times:.1f} times for each sample that a worker gives, as many as there are"
        f" workers: each seems to make the samples of all {told.n_workers} and to drop the others', with"
        f" {format_fraction(told.share)} of its time"
    )
    return [Evidence.factor("input.repeated", told.times, said, expected="1")]


def _lengths(result: InputWaits) -> str:
    """How often and how long the host waits."""
    shortest, longest = format_ns(result.shortest_ns), format_ns(result.longest_ns)
    if result.n_waits == 1:
        return f"one wait takes {longest}"
    if result.is_once_a_step:
        return (
            f"each step waits once, for {longest}"
            if shortest == longest
            else f"each step waits once, {shortest} to {longest}"
        )
    return f"{result.n_waits:,} waits take {format_ns(result.waited_ns)} in total; the longest takes {longest}"


def _pattern(result: InputWaits) -> Evidence:
    kinds = {
        "single-process": "num_workers=0: the training process makes each batch itself, inside the step",
        "workers": _of_workers(result),
        "custom": "the script itself marks these waits",
        OF_THREAD: _of_thread(result),
        OPERATORS: f"most of the time is in {result.maker}, before the first call of the step, the copy of its batch",
        UNMARKED: "no operators and no range of a loader were recorded: that this is input is told by its place",
    }
    where = [kinds[result.loader]]
    if result.loader == "workers" and result.code.words:
        where[0] += f": {result.code.words}"
    if result.n_steps > 1 and not result.is_once_a_step:
        where.append(f"{result.n_steps_waiting} of {result.n_steps} steps wait")
    if result.n_steps > 1 and result.top_step_share * result.n_steps_waiting > _EVEN:
        where.append(f"the step that waits longest has {format_fraction(result.top_step_share)} of all waiting")
    return Evidence.share("input.top_step_share", result.top_step_share, "; ".join(where))


def _of_thread(result: InputWaits) -> str:
    """What the thread does that makes the batches."""
    if not result.feeders:
        return "another thread of this process makes the batches"
    one, span_ns = result.feeders[0], result.scope.window_ns
    ran = format_fraction(min(one.run_ns / span_ns, 1.0) if span_ns else 0.0)
    return f"the thread {one.shown} puts them into a queue; it ran for {ran} of the time" + (
        ", and waits for storage, another process or a lock else" if result.is_feeder_waiting else ""
    )


def _of_workers(result: InputWaits) -> str:
    slow = result.slow_worker
    if slow is not None:
        others = format_ns(max(one.fetch_ns for one in result.workers if one is not slow))
        batches = "its one batch" if slow.n_batches == 1 else "a batch"
        return (
            f"worker {slow.number} takes {format_ns(slow.fetch_ns)} for {batches}, the others {others} at most: batches are"
            " taken in turn, so all wait for it"
        )
    if not result.keeps_up and not result.is_handed_over:
        return "the worker processes of the DataLoader do not keep up"
    busy = format_fraction(result.workers_busy or 0)
    late = "" if result.is_handed_over else ": some batches come late"
    return f"the worker processes of the DataLoader fetch for {busy} of their time{late}"


def present(result: InputWaits) -> Section:
    """Show the waits."""
    return Section(
        analyzer="input",
        title="input pipeline",
        values={
            "n_waits": result.n_waits,
            "waited_ns": result.waited_ns,
            "idle_ns": result.idle_ns,
            "longest_ns": result.longest_ns,
            "loader": result.loader,
            "top_step_share": result.top_step_share,
            "workers_busy": result.workers_busy,
        },
    )


ANALYZER = Analyzer(
    name="input",
    question="does the step wait for its data?",
    needs="DataLoader ranges on the host (written by torch.profiler with CPU activity)",
    measure=measure,
    judge=judge,
    rows=_rows,
    places=_places,
    present=present,
)
