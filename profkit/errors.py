"""The exceptions profkit raises, all under one root.

    ProfkitError                 message + hint + exit code
    +- UsageError                the call makes no sense                     exit 2
    +- TraceError                the input cannot be analysed                exit 3
    |  +- TraceNotFoundError     no such file, or nothing to read in a folder
    |  +- TraceFormatError       not a trace, or a broken one
    |  +- TruncatedTraceError    a trace that ends too early; `--lenient` keeps what is whole
    |  +- UnsupportedTraceError  a trace of a kind, or with a content, profkit cannot use
    +- MissingCapabilityError    a package, tool or device is missing        exit 4

A message says what, where and the value seen; the hint says the next act. `profkit.cli` alone turns them into one
line on stderr and an exit code.
"""

from __future__ import annotations

from typing import ClassVar


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
