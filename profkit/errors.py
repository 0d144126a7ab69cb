"""The exceptions profkit raises, all under one root.

    ProfkitError                 message + hint + exit code
    +- UsageError                the call makes no sense                     exit 2
    +- TraceError                the input cannot be analysed                exit 3
    |  +- TraceNotFoundError     no such file, or nothing to read in a folder
    |  +- TraceFormatError       not a trace, or a broken one
    |  +- TruncatedTraceError    a trace that ends too early; `--lenient` keeps what is whole
    |  +- UnsupportedTraceError  a trace of a kind, or with a content, profkit cannot use
    +- MissingCapabilityError    a package, tool or device is missing        exit 4
    +- InternalError             a fault of profkit's own                    exit 70

A message says what, where and the value seen; the hint says the next act. `profkit.cli` alone turns them into one
line on stderr and an exit code. What goes wrong otherwise is profkit's own fault: `blamed` gives it the file and the
step that failed, so that one file's fault ends no other's analysis, and a report of it can be acted on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ClassVar, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

RAISE: Final = "PROFKIT_RAISE"
"""Name of an environment variable: where it is set nothing is absorbed, and faults are raised as they come (tests)."""

_LONGEST_SAID: Final = 200  # characters of what was raised (chosen)


class ProfkitError(Exception):
    """Root of all errors that profkit raises on purpose."""

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the hint across process boundaries (Exception pickles positional arguments only)."""
        return _rebuild, (type(self), self.message, self.hint, self.__dict__)


def _rebuild(kind: type[ProfkitError], message: str, hint: str, state: dict[str, object]) -> ProfkitError:
    error = kind.__new__(kind)
    ProfkitError.__init__(error, message, hint=hint)
    error.__dict__.update(state)
    return error


class UsageError(ProfkitError):
    """Arguments that contradict each other or name something that is not there."""

    exit_code = 2


class TraceError(ProfkitError):
    """The input cannot be analysed."""


class TraceNotFoundError(TraceError):
    """No such file, or a folder without traces."""


class TraceFormatError(TraceError):
    """The bytes are not a trace, or are a broken one."""


class TruncatedTraceError(TraceError):
    """The input ends in the middle.

    `n_whole_events` is the number of events that were complete before the end.
    """

    def __init__(self, message: str, *, hint: str = "", n_whole_events: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.n_whole_events = n_whole_events


class UnsupportedTraceError(TraceError):
    """A trace that is whole but holds nothing profkit can analyse."""


class MissingCapabilityError(ProfkitError):
    """An optional package, an external tool, a device or a permission is missing."""

    exit_code = 4


class InternalError(ProfkitError):
    """A fault of profkit itself: the message names the file, the step that failed, and what was raised."""

    exit_code = 70


def fault(error: BaseException, doing: str, source: str) -> InternalError:
    """What is told of a fault: the file, the step, what was raised, and how to report it."""
    said = f"{type(error).__name__}: {error}".removesuffix(": ").partition("\n")[0]
    if len(said) > _LONGEST_SAID:  # whole words: half a secret is not known for one where secrets are taken out
        said = f"{said[:_LONGEST_SAID].rpartition(' ')[0]} ..."
    where = f"{source}: " if source else ""
    return InternalError(
        f"{where}profkit itself failed while {doing} ({said})",
        hint="please report this with the file, or with the output of `profkit info`; -v prints the traceback to send",
    )


@contextmanager
def blamed(doing: str, source: str) -> Iterator[None]:
    """Turn what goes wrong inside into an InternalError; `doing` as "reading", "analysing kernels".

    Errors of ours stay as they are, and all do where `RAISE` is set.
    """
    try:
        yield
    except ProfkitError:
        raise
    except Exception as error:
        if os.environ.get(RAISE):
            raise
        raise fault(error, doing, source) from error


def each_blamed(doing: str) -> Callable[[Callable[P, Iterator[T]]], Callable[P, Iterator[T]]]:
    """Do as `blamed` does for a generator of something, whose first argument is the file."""

    def decorated(generator: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
        @wraps(generator)
        def blaming(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            with blamed(doing, str(args[0])):
                yield from generator(*args, **kwargs)

        return blaming

    return decorated
