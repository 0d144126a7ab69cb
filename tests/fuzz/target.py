"""One command of profkit in this process, as `profkit.cli.main` runs it, and all that can be seen of it from outside."""

import io
import os
import re
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import profkit
from profkit import cli
from tests.fuzz import values

LIMIT_S = 20
LIMIT_CPU_S = 5  # of a processor: inputs are small, and a machine may be busy
MOST_BYTES = 1_500 * 2**20
_PACKAGE = str(Path(profkit.__file__).parent)
_LIBRARIES = (sys.prefix, sys.base_prefix, "/usr/")
_STARTS = {
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn"),
}
_CONNECTS = {"socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"}
_CHANGES = {
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"),
    *("os.chown", "os.mkfifo"),
}
_HARMLESS = re.compile(r"/dev/(?:null|urandom|tty)|/proc/.*|<.*>|.*\.pyc(?:\.\d+)?|.*/__pycache__.*|/dev/shm/pym-.*")


class Left(BaseException):
    """The process would have exited here."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class TooSlow(BaseException):
    """The limit of time is over."""


@dataclass
class Outcome:
    """What a command did."""

    args: list[str]
    code: int = -1
    out: str = ""
    err: str = ""
    error: BaseException | None = None
    where: tuple[str, ...] = ()
    """The innermost places of profkit in the error's traceback, `file:function`, the innermost last."""
    traceback: str = ""
    wall_s: float = 0.0
    peak_bytes: int = 0
    """Growth of resident memory at its peak."""
    warned: list[str] = field(default_factory=list)
    acts: list[str] = field(default_factory=list)
    """What it did to the world: files opened for writing, processes, connections."""

    new_files: list[str] = field(default_factory=list)
    """Files that are there now and were not before."""

    unlike: str = ""
    """Where the compiled scanner and Python alone read another trace: how they begin."""

    others: list["Outcome"] = field(default_factory=list)
    """What other commands on the same input did before."""

    @property
    def command(self) -> str:
        return self.args[0]

    @property
    def fmt(self) -> str:
        return self.args[self.args.index("-f") + 1] if "-f" in self.args else "terminal"


def _leave(code: int) -> None:
    raise Left(code)


class _Watch:
    """An audit hook cannot be taken away: it is put in once, and listens while a command runs."""

    def __init__(self) -> None:
        self.acts: list[str] | None = None
        self.is_hooked = False

    def hook(self) -> None:
        if not self.is_hooked:
            self.is_hooked = True
            sys.addaudithook(self)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if self.acts is None:
            return
        if event == "open":
            path, mode, flags = args
            is_writing = (isinstance(mode, str) and bool(set(mode) & set("wax+"))) or bool(
                (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            )
            if is_writing and not isinstance(path, int):
                self._tell("writes", path)
        elif event in _CHANGES:
            self._tell(event, args[0])
        elif event in _STARTS or event in _CONNECTS:
            self.acts.append(f"{event} {str(args[:2])[:200]}")

    def _tell(self, what: str, path: Any) -> None:
        text = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else str(path)
        if self.acts is not None and not _HARMLESS.fullmatch(text):
            self.acts.append(f"{what} {text}")


_WATCH = _Watch()


def run(args: list[str], *, limit_cpu_s: float = LIMIT_CPU_S) -> Outcome:
    """Run a command in the present folder."""
    outcome = Outcome(args=args)
    _WATCH.hook()
    streams = sys.stdout, sys.stderr
    out, err = _stream("strict"), _stream("backslashreplace")  # as Python opens them
    sys.stdout, sys.stderr = out, err
    left, cli._leave = cli._leave, _leave
    there = _here()
    before = _resident_bytes(fresh=True)
    begun = time.perf_counter()
    try:
        with _warnings_heard(outcome.warned), _alarm(limit_cpu_s):
            _WATCH.acts = outcome.acts
            cli.main(args)
    except Left as done:
        outcome.code = done.code
        if done.code == 70:
            outcome.error = done.__context__
    except BaseException as error:  # noqa: BLE001 - whatever comes out is what we look for
        outcome.error = error
        outcome.code = 1
    finally:
        _WATCH.acts = None
        outcome.wall_s = time.perf_counter() - begun
        sys.stdout, sys.stderr = streams
        cli._leave = left
    outcome.peak_bytes = _resident_bytes() - before
    outcome.new_files = sorted(_here() - there)
    outcome.out, outcome.err = (_text(stream) for stream in (out, err))
    if outcome.error is not None:
        outcome.where = places(outcome.error)
        outcome.traceback = "".join(traceback.format_exception(outcome.error, limit=-12))[-6000:]
    return outcome


def _stream(errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors, newline="\n", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    with suppress(ValueError):  # closed
        stream.flush()
    try:
        data = stream.buffer.getvalue()  # type: ignore[attr-defined]
    except ValueError:
        return ""
    return bytes(data).decode("utf-8", "backslashreplace")


def _here() -> set[str]:
    return {os.path.join(folder, name)[2:] for folder, _, names in os.walk(".") for name in names}  # noqa: PTH118 - fast


@contextmanager
def _warnings_heard(into: list[str]) -> Iterator[None]:
    """Hear each warning that a user would see, every time."""

    def hear(message: Any, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
        into.append(f"{category.__name__}: {message} ({Path(filename).name}:{lineno})")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for ignored in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", ignored)
        warnings.showwarning = hear
        yield


@contextmanager
def _alarm(limit_cpu_s: float) -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    clocks = ((signal.SIGALRM, signal.ITIMER_REAL, LIMIT_S), (signal.SIGPROF, signal.ITIMER_PROF, limit_cpu_s))
    before = [signal.signal(number, ring) for number, _, _ in clocks]
    for _, timer, seconds in clocks:
        signal.setitimer(timer, seconds, 1.0)  # again, where the first was swallowed
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(clocks, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def _resident_bytes(*, fresh: bool = False) -> int:
    """Resident memory: now and from here on the peak (`fresh`), or the peak since then; 0 where /proc is none."""
    try:
        if fresh:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    key = "VmRSS:" if fresh else "VmHWM:"
    return int(status.partition(key)[2].split(None, 1)[0]) * 1024


def places(error: BaseException, *, most: int = 3) -> tuple[str, ...]:
    """The innermost places of profkit in a traceback, as `file:function`."""
    found = []
    frame = error.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        if code.co_filename.startswith(_PACKAGE):
            found.append(f"{code.co_filename.removeprefix(_PACKAGE).lstrip('/')}:{code.co_name}")
        frame = frame.tb_next
    inner = [place for place in found if not place.startswith("cli/__init__")]
    return tuple(inner[-most:])


def warm() -> None:
    """Import what commands import when they are called; a command marked as the user's own is taken for it."""
    from profkit import signing

    signing.holds = lambda _purpose, _data, mark: mark == values.OWN
    for module in ("triage", "info", "kernels", "compare", "scaling", "ladder", "schema", "ncu"):
        __import__(f"profkit.cli.{module}")


def limit_memory() -> None:
    """Let this process have so much more than it has now."""
    if sys.platform != "linux":
        return
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = size + MOST_BYTES + 256 * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**30, 2**30))


def at_home(folder: Path) -> None:
    """Let commands have a home and a folder for temporary files that are nobody's."""
    for name in ("user", "tmp"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    user = str(folder / "user")
    os.environ.update(HOME=user, XDG_CACHE_HOME=user, XDG_STATE_HOME=user, XDG_CONFIG_HOME=user)
    os.environ.update(TMPDIR=str(folder / "tmp"), COLUMNS="100")
