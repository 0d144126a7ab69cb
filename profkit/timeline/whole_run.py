"""What a capture saw of the whole run beside the recorded steps, and the recorded steps without the rare ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.model.arrays import median
from profkit.model.code import ACTING, CodePlace, Phase, PlaceShare
from profkit.model.intervals import Intervals
from profkit.model.trace import Step, Trace
from profkit.plain import clean
from profkit.timeline.code.helpers import restarts
from profkit.timeline.input import loader_ranges
from profkit.timeline.pace import Paced
from profkit.timeline.steps import edges, step_lengths_ns, steps_in_window
from profkit.units import MANY_FETCHES, format_ns, format_numbers

_LONG: Final = 1.5
"""Times the median recorded step, from which it is one of the rare ones (as the capture has it)."""
_LEAST: Final = 3
"""Steps in a row without rare ones, from which these show the usual step (chosen: as few as a verdict takes)."""
_LEAST_OF_RUN: Final = 2
"""The same where the whole run shows that the long ones are no example. Chosen: few are said to be few."""
_MANY: Final = 30
"""Steps of a run from which its thirds show whether it becomes slower (chosen: ten in each)."""
_SLOWER: Final = 1.25
"""Chosen: far beyond what a shared machine does to the median of a third of the steps..."""
_SLOWER_STEADILY: Final = 1.1
"""...and where each quarter of the run is slower than the one before (chosen: weather comes and goes)."""
_OF_CPU: Final = 0.5
"""Of the rate at which steps grow, the least at which their CPU time does where it is they that take longer: without a
core a thread waits, and takes none. Chosen: caches that other programs use make it grow somewhat."""
_MUCH_CPU: Final = 0.15
"""...and so much that nothing else explains it: steps may grow, and wait for a core as well. Chosen."""
_AS_OFTEN: Final = 0.1
"""By what share two intervals may differ that are the same. Chosen: the first and the last pass are cut off."""
_BURST: Final = 1.5
"""Times the workers, up to which every so many steps are a burst of theirs. Chosen."""
_KNOWN: Final = 20
"""Timed steps from which a run shows how often a step is long. Chosen: two of them where one of five recorded is."""
_SELDOM: Final = 0.5
"""Of the share of long steps among the recorded ones, up to which the run has them more seldom. Chosen."""
_FAR: Final = 2.0
_FAR_NS: Final = 20_000_000
"""Beyond the median, in medians and in ns: then a recorded step is far longer. Chosen: more than a core is lent for."""
_LONGEST: Final = 400
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Amount = Annotated[int, msgspec.Meta(ge=0, lt=10**18)]
_Some = Annotated[int, msgspec.Meta(gt=0, lt=10**18)]
_RARE_LINE: Final = 0.05
"""Of the looked-at time, from which what only some steps do sets these apart. Chosen: the severity medium."""
EVALUATES: Final = frozenset(
    {"evaluate", "evaluation", "eval", "validate", "validation", "valid", "val", "predict", "prediction"}
)
_MANY_PARTS: Final = 8
"""Parts of the run from which the share that stays is a fourth of the growth at most. Chosen."""
_MOST_PILED: Final = 0.95
"""Of the run, what hooks that pile up have at most. Chosen: some of the step is the work."""
_SIGMAS: Final = 3.0
_GROWN: Final = 2.0
_ALL: Final = 0.9999
"""A line grows that takes twice as much, beside all else, in the last third as in the first, by so many deviations of
its looks. Chosen: by chance one of ten lines does so in one of 70 runs, and has to take twice as much as well. Beside a
line that has all of the last third, to the digits that the capture writes, there is no rest to compare it with."""


class Line(msgspec.Struct, frozen=True):
    """A line of the script's own code and its share (0-1) of what the rare steps take more."""

    file: str
    line: _Amount
    function: str
    text: str = ""
    share: _Share = 0.0

    @property
    def place(self) -> CodePlace:
        """The line as a place."""
        file, function, text = (clean(value[:_LONGEST]) for value in (self.file, self.function, self.text))
        return CodePlace(file=file, function=function, line=self.line, text=text)

    def shown(self, share: float, ns: int, count: int) -> PlaceShare:
        """What it has of a time, with no module."""
        return PlaceShare(place=self.place, phase=Phase.OTHER, ns=ns, share=min(share, 1.0), count=count, n_modules=0)


class Hot(Line, frozen=True):
    """A line that the run is often at beside the recorded steps; `share` is that of the time looked at."""

    n_looks: _Amount = 0
    every: _Amount = 0
    """How many steps apart it comes, 0 where that is not regular or not known."""
    around: tuple[str, ...] = ()
    """The functions whose calls lead to it, the outermost first."""
    way: str = ""
    """What has most of its looks: "text" (of tensors), "save", "model" (inside a module's call), "" else."""
    in_thirds: tuple[_Share, _Share, _Share] = (0.0, 0.0, 0.0)
    """Its share (0-1) of each third of that time."""

    @property
    def acts(self) -> bool:
        """Whether it makes the data or the targets that are trained on, by the words of the line and of its callers."""
        place = self.place
        return any(
            replace(place, function=name[:_LONGEST]).single_words & ACTING for name in (place.function, *self.around)
        )

    @property
    def grows(self) -> bool:
        """Whether it takes more and more beside all else, from third to third and clearly beyond chance."""
        first, second, third = self.in_thirds
        n_each = self.n_looks / self.share / 3 if self.share else 0.0
        is_sure = (third - first) ** 2 * n_each >= _SIGMAS**2 * (third + first)
        is_whole = self.share <= third < _ALL  # the whole run's share is between those of its thirds
        return is_sure and is_whole and first <= second <= third and _beside(third) >= _GROWN * _beside(first)

    @property
    def beyond(self) -> float:
        """What it takes (0-1 of the time) beyond the pace that it has where the run begins."""
        first, _, third = map(_beside, self.in_thirds)
        pace = max(first - (third - first) / 4, 0.0)  # the middle of the first third is a quarter as far from its begin
        return max(self.share - pace * (1 - self.share), 0.0)


def _words_of(line: Line) -> frozenset[str]:
    """Those of the name of its function."""
    return replace(line.place, text="").single_words


def _beside(share: float) -> float:
    """A share of a time as that of the rest of it."""
    return share / (1 - share) if share < 1 else float("inf")


class Rare(msgspec.Struct, frozen=True, kw_only=True):
    """Rare long steps of the run: how many, every how many steps, how long (ns), and where."""

    lines: tuple[Line, ...]
    n: _Some
    every: Annotated[float, msgspec.Meta(ge=1, lt=10**18)]
    long_ns: _Some
    beyond_ns: _Some
    share: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    """Of the run's time (0-1), what they take beyond the usual step."""
    at_place: Annotated[float, msgspec.Meta(gt=0, le=1)]
    """Of that (0-1), what lies at the lines."""
    n_looks: _Amount
    n_steps: _Amount = 0
    """The steps that `n` of are long; 0 where these are those of the run that nothing recorded."""
    since: _Amount = 0
    """The step from which on they come, where the run began without them: `n_steps` and `share` are of these."""
    modelled: _Share = 0.0
    """Of what they take more (0-1), what modules compute at the lines: the forward passes of an evaluation."""
    is_regular: bool = False
    inside: tuple[Line, ...] = ()
    callers: tuple[Line, ...] = ()
    way: str = ""
    """"load" and "wait" (a loader's own thread, its workers), "start" (of workers), "save", "text" (of
    tensors), "model" (of a module's call), "" else."""
    callee: str = ""

    @property
    def functions(self) -> frozenset[str]:
        """The words of the functions that lead there, and of those that run there."""
        lines = (*self.callers, *self.lines, *self.inside)
        return frozenset[str]().union(*map(_words_of, lines))

    @property
    def named(self) -> Line:
        """The line to name: where most of it is in the model, the evaluation's that calls it, if one does."""
        within = (line for line in reversed((*self.callers, self.lines[0])) if _words_of(line) & EVALUATES)
        return next(within, self.lines[0]) if self.way == "model" else self.lines[0]

    @property
    def is_evaluation(self) -> bool:
        """Whether an evaluation does it, by the names of its functions and the text of its lines."""
        return any(map(self.evaluates, self.lines))

    def evaluates(self, line: Line) -> bool:
        """The same of one of its lines; where there are several, not by what the others call."""
        said = line.place.single_words
        led = frozenset[str]().union(*map(_words_of, self.callers)) if len(self.lines) > 1 else self.functions
        return bool((led | said) & EVALUATES)


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The container that grows."""

    name: str
    has_graph: bool
    has_tensor: bool
    per_step: Annotated[float, msgspec.Meta(ge=0, lt=10**18)]
    file: str = ""
    line: _Amount = 0
    function: str = ""
    text: str = ""

    @property
    def shown_name(self) -> str:
        """Its name, as it may be shown."""
        return clean(self.name[:_LONGEST])

    @property
    def at(self) -> Line | None:
        """The line that adds to it, if that is known."""
        return Line(self.file, self.line, self.function, self.text) if self.line else None


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that grows: bytes for each step, over so many steps since the first."""

    bytes_per_step: _Amount
    grown_bytes: _Amount
    first_step: _Amount
    n_steps: _Amount
    held: Held | None = None


class Slower(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that take longer and longer: `pace_ns` each where the run begins, `beyond_ns` more in all `n` of them."""

    pace_ns: _Some
    beyond_ns: _Some
    n: _Some
    line: Line | None = None
    """Where at least two thirds of the growth are, if that is one line and the others do not grow as it does."""
    callee: str = ""
    at_place: _Share = 0.0
    """Of the growth (0-1), what lies at the line."""
    has_backward: bool = False
    """Whether `at_place` holds that of the backward pass, which grows with what the line computes."""
    n_looks: _Amount = 0


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """What fills with subnormal numbers: how many of its values are so at first and in the end."""

    of: Annotated[str, msgspec.Meta(max_length=60)]
    n_first: _Amount
    n_last: _Amount


class Sunk(Filled, frozen=True, kw_only=True):
    """What fills most, with the CPU time of steps (0 where that is not known), and what else fills."""

    first_ns: _Amount = 0
    last_ns: _Amount = 0
    mean_ns: _Amount = 0
    """Of a step at first, of one in the end, and of all."""
    others: tuple[Filled, ...] = ()

    @property
    def each(self) -> tuple[Filled, ...]:
        """All that fill."""
        return (self, *self.others)

    def share(self, filled: Filled) -> float:
        """Of the run (0-1), what one of them takes beyond steps without such numbers, each of which costs as much."""
        n, grown_ns = filled.n_last - filled.n_first, self.last_ns - self.first_ns
        if n <= 0 or grown_ns <= 0 or not self.mean_ns:
            return 0.0
        pace_ns = max(self.first_ns - grown_ns * filled.n_first / n, 0.0)
        return max(1 - pace_ns / self.mean_ns, 0.0)


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """A line that waits for a lock, the thread that mostly holds it, its block, and what it mostly does in it."""

    waits: Line
    thread: str
    block: Line
    inside: Line
    n_looks: _Amount = 0

    @property
    def shown_thread(self) -> str:
        """Its name in quotes."""
        return f'"{clean(self.thread[:_LONGEST])}"'


class WholeRun(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a run that nothing recorded: `n` of them, ns."""

    n: Annotated[int, msgspec.Meta(gt=1, lt=10**18)]
    median_ns: _Some
    mean_ns: _Some
    usual_ns: _Some
    """The mean of those that are not long."""
    first_ns: _Some
    last_ns: _Some
    """Medians of the first and the last third of these."""
    n_long: _Amount = 0
    cpu_first_ns: _Amount = 0
    """CPU time of the training thread, medians of a step of these thirds..."""
    cpu_last_ns: _Amount = 0
    """...0 where nobody has read it."""
    rare: Rare | None = None
    memory: Memory | None = None
    slower: Slower | None = None
    subnormal: Sunk | None = None
    hooks: tuple[_Amount, _Amount] = (0, 0)
    """Hooks of the model at first and in the end, where they pile up."""
    locks: tuple[Lock, ...] = ()
    """Lines that wait for a lock that another thread mostly holds."""
    lines: tuple[Hot, ...] = ()
    """Of a run on a CPU, what does not train and what may: the longest first."""

    def lock_at(self, line: CodePlace) -> Lock | None:
        """Who holds what this line waits for."""
        there = (line.file, line.line)
        return next((one for one in self.locks if (one.waits.place.file, one.waits.line) == there), None)

    @property
    def removable(self) -> float:
        """Of what steps take beyond the first ones (0-1), what a fix spares that does once what grows.

        Where something comes every so many steps, as a task or an epoch ends, it may grow there: the first part of the
        run then has nothing of it, and of the others as much as the second stays.
        """
        rare = self.rare
        if rare is None or not rare.is_regular or self.n < _MANY_PARTS * rare.every:
            return 1.0
        return 1 - 2 * rare.every / self.n

    def most_ns(self, gain_ns: int, share: float, line: Line) -> int | None:
        """What a fix saves at most of a line that grows, where its growth is that share (0-1) of the run.

        All that the run is at lines of its function: how much of it is there from the first step on, nothing tells.
        None where looks did not find more there.
        """
        whole = self._at_function(line)
        return round(gain_ns * whole / share) if whole > share > 0 else None

    def beyond(self, pace: float, line: Line) -> float:
        """The share (0-1) of the run that goes with what makes a line grow; `pace`: that beyond the first steps' pace.

        Where hooks pile up, no less than what looks find at the line's function, but for the part of the first hooks:
        these rise evenly.
        """
        first, last = self.hooks
        piled = self._at_function(line) * (1 - 2 * first / (first + last)) if last > first else 0.0
        return max(pace, min(piled, _MOST_PILED))

    def _at_function(self, line: Line) -> float:
        """The share (0-1) of the run that is at lines of its function."""
        at = (line.file, line.function)
        return min(sum(one.share for one in self.lines if (one.file, one.function) == at), 1.0)

    @property
    def has_rare(self) -> bool:
        """Whether only some steps do something that takes long, by their times or by the looks at them."""
        return self.rare is not None or any(one.every > 1 and one.share >= _RARE_LINE for one in self.lines)

    def is_rarer(self, n_long: int, n: int) -> bool:
        """Whether far fewer of the run's steps are long than these `n_long` of `n`."""
        return self.n >= _KNOWN and self.n_long * n <= _SELDOM * n_long * self.n

    @property
    def is_slower(self) -> bool:
        """Whether the step grows by so much, or so steadily, that a short recording is no example of the run."""
        least = _SLOWER if self.slower is None else _SLOWER_STEADILY
        return self.n >= _MANY and self.last_ns >= least * self.first_ns

    @property
    def is_far_slower(self) -> bool:
        """Whether it is so slow that it is not healthy, unless other programs are why."""
        return self.is_slower and self.last_ns >= _SLOWER * self.first_ns and not self.is_weather

    @property
    def is_weather(self) -> bool:
        """Whether its steps take longer and the CPU time of the training thread does not, where that is known."""
        if not self.cpu_first_ns:
            return False
        grown, own = self.last_ns / self.first_ns - 1, self.cpu_last_ns / self.cpu_first_ns - 1
        return own < min(_OF_CPU * grown, _MUCH_CPU)

    @property
    def is_faster(self) -> bool:
        """Whether the step shrinks by as much."""
        return self.n >= _MANY and self.first_ns >= _SLOWER * self.last_ns


def whole_run(trace: Trace) -> WholeRun | None:
    """What the capture saw of the run; None where it said nothing, or nothing that holds together."""
    told: Any = trace.meta.metadata.get("profkit_run")
    if not isinstance(told, dict) or not told:
        return None
    try:
        run = msgspec.convert(told, WholeRun)
    except (msgspec.ValidationError, OverflowError):
        return None
    rare, slower = run.rare, run.slower
    if slower is not None and run.is_weather:
        run = replace(run, slower=replace(slower, line=None))
    if (rare is not None and not rare.lines) or (
        slower is not None and slower.line is not None and not slower.at_place
    ):
        return None
    if rare is not None and rare.way == "wait" and rare.every <= _BURST * _n_workers(trace):
        run = replace(run, rare=None)  # saturated workers deliver in bursts: that is the input as a whole
    elif rare is not None and rare.way == "wait" and rare.is_regular and _is_start(trace, rare):
        run = replace(run, rare=replace(rare, way="start"))
    return run


def _is_start(trace: Trace, rare: Rare) -> bool:
    """Whether workers are started anew as often as these steps come: what the loop waits for is then a start."""
    told = restarts(trace)
    return told is not None and abs(told.n_batches / told.n - rare.every) <= _AS_OFTEN * rare.every


def _n_workers(trace: Trace) -> int:
    """The most workers of a loader whose batches the recorded steps took."""
    counts = [one.get("n_workers") for one in trace.meta.listed("profkit_loaders")]
    return max((count for count in counts if isinstance(count, int)), default=0)


def without_rare(trace: Trace) -> Paced:
    """The trace with the longest stretch, of several the last, of steps that hold nothing rare.

    A long step is rare where the run shows that, or where it fetches the batches of another loop.
    """
    run, steps = whole_run(trace), steps_in_window(trace)
    if len(steps) <= _LEAST or not trace.is_marked:
        return Paced(trace)
    lengths = step_lengths_ns(trace)
    is_long = lengths > _LONG * median(lengths)
    beyond = lengths - median(lengths)
    n_far = int(np.count_nonzero(beyond >= max(_FAR * median(lengths), _FAR_NS)))
    is_of_run = run is not None and (run.has_rare or (n_far > 0 and run.is_rarer(n_far, len(steps))))
    odd = np.flatnonzero(is_long if is_of_run else is_long & _fetches_many(trace, steps))
    if not odd.size:
        return Paced(trace)
    bounds = [-1, *odd.tolist(), len(steps)]
    first, last = max(((low + 1, high) for low, high in pairwise(bounds)), key=lambda one: (one[1] - one[0], one))
    if last - first < (_LEAST_OF_RUN if is_of_run else _LEAST):
        return Paced(trace)
    end = steps[last].start_ns if last < len(steps) else trace.window_ns[1]
    numbers = [steps[place].number for place in odd.tolist()]
    is_one = len(numbers) == 1
    which = f"step{'s' * (not is_one)} {format_numbers(numbers)}"
    does = (
        f"{'does' if is_one else 'do'} what only some steps of the run do"
        if is_of_run
        else f"{'fetches' if is_one else 'fetch'} the batches of another loop, a validation, and"
        f" {'takes' if is_one else 'take'} {format_ns(int(lengths[odd].max()))}{'' if is_one else ' at most'}"
    )
    note = f"{which} also {does}: shares are of the {last - first} steps without {'it' if is_one else 'them'}"
    return Paced(replace(trace, window_ns=(steps[first].start_ns, end)), note)


def _fetches_many(trace: Trace, steps: Sequence[Step]) -> NDArray[np.bool_]:
    """Which steps fetch far more batches than the others, shape (n,)."""
    mine = loader_ranges(trace.spans, ())[0]
    begun = Intervals.of_rows(trace.spans, mine).start_ns  # ranges inside others apart
    place = np.searchsorted(edges(steps)[0], begun, "right") - 1
    counts = np.bincount(place[(place >= 0) & (begun < trace.window_ns[1])], minlength=len(steps))
    return counts >= MANY_FETCHES * max(median(counts), 1)
