"""pytest in a process of its own: the modules of `profkit` changed as they are loaded, ../shared out of sight."""

import builtins
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.conftest import ROOT

PRELOADED = ("numpy", "pandas", "hypothesis", "msgspec", "rich.console", "click", "jsonschema", "scipy.stats")
"""What the tests load anyway: loaded once, before the processes part."""
_SHARED = str(ROOT.parent / "shared")
_OPTIONS = (
    *("-q", "--no-header", "--tb=no", "-W", "ignore::pytest.PytestAssertRewriteWarning"),
    *("-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist"),
)


class Loader(SourceFileLoader):
    """Loads one module from a text other than its file's."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> Any:
        return compile(self._text, self.path, "exec", dont_inherit=True)


class Finder:
    """Finds the modules that are changed, before Python's own finders do."""

    def __init__(self, texts: dict[str, tuple[str, str]]) -> None:
        self._texts = texts

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self._texts:
            return None
        place, text = self._texts[name]
        folder = [str(Path(place).parent)] if place.endswith("__init__.py") else None
        spec = importlib.util.spec_from_file_location(
            name, place, loader=Loader(name, place, text), submodule_search_locations=folder
        )
        assert spec is not None
        return spec


class Chosen:
    """A pytest plugin: of the collected tests those wanted, the quick first; notes each test's outcome and time."""

    def __init__(self, wanted: dict[str, float], finder: Finder) -> None:
        self._wanted = wanted
        self._finder = finder
        self.failed = ""
        self.n_run = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:
        sys.meta_path.insert(0, self._finder)  # before pytest's own, which takes `permutation_test` for a test file

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._wanted), key=lambda item: self._wanted[item.nodeid]
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.n_run += report.when == "call"
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


def preload() -> None:
    """Load what all the processes need, none of it profkit's."""
    for name in PRELOADED:
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.split(".")[0] == "profkit" or name == "tests.conftest"]:
        del sys.modules[name]


def in_process(work: Callable[[], Any], *, cpu_s: float) -> Any:
    """What `work` returns, called in a forked process that may use so many seconds; None where that was not enough."""
    with TemporaryDirectory(prefix="profkit-mutants-") as folder:
        answer = Path(folder) / "answer.json"
        child = os.fork()
        if child == 0:
            try:
                os.setpgid(0, 0)
                resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 5))
                signal.signal(signal.SIGXCPU, signal.SIG_DFL)
                _quiet(Path(folder))
                answer.write_text(json.dumps(work()), encoding="utf-8")
            except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(0)
        _wait(child, wall_s=20 * cpu_s)
        return json.loads(answer.read_text("utf-8")) if answer.exists() else None


def _wait(child: int, *, wall_s: float) -> None:
    deadline = time.monotonic() + wall_s
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.02)


def _quiet(folder: Path) -> None:
    said = os.open(folder / "said", os.O_CREAT | os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(said, stream)
    os.environ["PROFKIT_HYPOTHESIS"] = "mutants"
    os.chdir(ROOT)
    _hide_shared()


def _hide_shared() -> None:
    """Let the real traces beside the repository look absent: what guards a rule must be in the repository."""
    stat = os.stat

    def seen(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(_SHARED):
            raise FileNotFoundError(2, "hidden from the tests", str(path))
        return stat(path, *args, **options)

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event in {"open", "os.listdir", "os.scandir"} and str(args[0]).startswith(_SHARED):
            raise FileNotFoundError(2, "hidden from the tests", str(args[0]))

    os.stat = seen
    sys.addaudithook(audit)


def run(
    texts: dict[str, tuple[str, str]], wanted: dict[str, float], plugins: Sequence[Any] = (), files: Sequence[str] = ()
) -> tuple[str, int]:
    """The first test that fails ("" for none) with modules changed, and how many ran; call it in a process of its own.

    `texts` holds (path, text) by module; `wanted` the tests with their order.
    """
    chosen = Chosen(wanted, Finder(texts))
    files = files or sorted({node.split("::")[0] for node in wanted})
    stop = () if plugins else ("-x",)
    code = pytest.main([*_OPTIONS, *stop, "-m", "not shared and not torch and not hta", *files], [chosen, *plugins])
    if not chosen.failed and code not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        chosen.failed = f"pytest itself: {code!r}"  # a module that cannot be imported by conftest
    return chosen.failed, chosen.n_run


class Reached:
    """A pytest plugin: which functions each test calls, where the modules note it (`reach.noting`)."""

    def __init__(self, note: Callable[[dict[str, Any]], None]) -> None:
        self._note = note
        self._calls: set[str] = set()
        self._of_fixture: dict[str, set[str]] = {}
        self._of_file: dict[str, set[str]] = {}
        self._times: dict[str, float] = {}
        self._red: set[str] = set()
        builtins.profkit_reached = self._calls.add  # type: ignore[attr-defined]

    def _since(self) -> set[str]:
        calls = set(self._calls)
        self._calls.clear()
        return calls

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        self._calls.clear()
        report = yield
        self._of_file.setdefault(collector.nodeid.split("::")[0], set()).update(self._since())
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        before = self._since()
        result = yield
        self._of_fixture.setdefault(fixturedef.argname, set()).update(self._since())
        self._calls.update(before)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._calls.clear()
        begun = time.process_time()
        done = yield
        calls = self._since() | self._of_file.get(item.nodeid.split("::")[0], set())
        for fixture in getattr(item, "fixturenames", ()):
            calls |= self._of_fixture.get(fixture, set())
        if item.nodeid not in self._red:
            self._note({"test": item.nodeid, "s": round(time.process_time() - begun, 4), "calls": sorted(calls)})
        return done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.skipped:
            self._red.add(report.nodeid)
