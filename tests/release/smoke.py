"""What a user does first with an installed profkit, beside what the checkout does."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from profkit import __version__
from tests.release.environments import EXTRAS, ROOT, Environment, pip
from tests.release.starts import faults as start_faults
from tests.release.starts import starts

MOST_CORE_BYTES: Final = 150_000_000
"""Of `pip install profkit`, without compiled Python: 0.2.0 has 115 MB, of which numpy and pandas are 100."""
MOST_DISTRIBUTIONS: Final = 18
"""Of `pip install profkit`: 0.2.0 has 14."""
TRACE: Final = ROOT / "traces" / "data_cpu.pt.trace.json.gz"
RANKS: Final = ROOT / "traces" / "ddp_straggler_ws4"
FORMATS: Final = ("json", "terminal", "markdown", "html", "agent", "github", "sarif")
_BLOCKED: Final = (
    "import sys; sys.modules.update(dict.fromkeys({names!r}));"
    "from profkit.cli import main; main(['triage', {trace!r}, '-f', 'json', '--no-cache'])"
)
_NEVER: Final = ("torch", "pandas", "nvtx", "hta", "fsspec", "distributed", "pyarrow", "rich", "jinja2", "scipy")
"""A triage as JSON needs none of these, installed or not."""
_LIBRARY: Final = (
    "import profkit;"
    "report = profkit.triage({trace!r}); assert report.verdict.bottleneck == 'data-bound', report.verdict;"
    "assert '<' in report._repr_html_();"
    "rows = profkit.read_trace({trace!r}).to_pandas('ops'); assert len(rows) > 100, rows"
)
_HELPS: Final = """
from click.testing import CliRunner
from profkit.cli import COMMANDS, group

for name in COMMANDS:
    done = CliRunner().invoke(group, [name, "--help"], catch_exceptions=False)
    assert done.exit_code == 0 and "Examples:" in done.output or "Example:" in done.output, (name, done.output)
"""
REFUSED: Final = {
    "parquet": ("export", TRACE, "-o", "rows.parquet"),
    "remote": ("triage", f"file://{TRACE}"),
    "cluster": ("triage", RANKS, "--dask", "tcp://127.0.0.1:9", "--no-cache"),
    "mcp": ("mcp", "--root", "."),
}
"""Commands that need an extra, and say which without it."""


@cache
def expected(folder: Path, *words: object) -> str:
    """What the checkout prints, by the Python that runs this."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "80", "NO_COLOR": "1"}
    line = [sys.executable, "-m", "profkit", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, check=True, cwd=folder, env=env).stdout


class Checks:
    """What is tried in one environment; `folder` is where the checkout's answers are printed."""

    def __init__(self, env: Environment, folder: Path) -> None:
        self.env = env
        self.folder = folder

    def says_its_version(self) -> Iterator[str]:
        """It starts, from its own folder."""
        done = self.env.profkit("--version")
        if done.stdout != f"profkit, version {__version__}\n":
            yield f"profkit --version: {done.stdout}{done.stderr}"
        where = self.env.run(self.env.python, "-c", "import profkit; print(profkit.__file__)").stdout
        if not where.startswith(str(self.env.folder)):
            yield f"profkit was imported from {where}"

    def prints_what_the_checkout_does(self, formats: tuple[str, ...] = FORMATS) -> Iterator[str]:
        """The same report of the same trace, in each format; ranks too."""
        for trace, fmt in [*((TRACE, fmt) for fmt in formats), (RANKS, "json")]:
            words = ("triage", trace, "-f", fmt, "--no-cache")
            done = self.env.profkit(*words)
            if done.returncode or done.stdout != expected(self.folder, *words):
                said = f"exit code {done.returncode}: {done.stderr}"
                yield f"triage {trace.name} -f {fmt} is not what the checkout prints; {said}"

    def helps(self) -> Iterator[str]:
        """Each command's help; on its own the program's."""
        if (done := self.env.profkit()).returncode or done.stdout != self.env.profkit("--help").stdout:
            yield f"profkit alone: exit code {done.returncode}: {done.stderr}"
        done = self.env.run(self.env.python, "-c", _HELPS)
        if done.returncode:
            yield f"profkit COMMAND --help: {done.stderr}"

    def doctors(self, *, is_native: bool) -> Iterator[str]:
        """The doctor looks at this Python, and says whether the scanner is in use."""
        done = self.env.profkit("doctor", "-f", "json")
        if done.returncode not in {0, 4}:
            yield f"profkit doctor: exit code {done.returncode}: {done.stderr}"
            return
        said = {check["name"]: check for check in json.loads(done.stdout)}
        in_use = "in use" in str(said.get("scanner"))
        if in_use != is_native:
            yield f"profkit doctor of the scanner: {said.get('scanner')}"

    def needs_no_more(self) -> Iterator[str]:
        """A triage as JSON where heavy packages cannot be imported."""
        code = _BLOCKED.format(names=_NEVER, trace=str(TRACE))
        done = self.env.run(self.env.python, "-c", code)
        if done.returncode or '"data-bound"' not in done.stdout:
            yield f"a triage without {', '.join(_NEVER)}: exit code {done.returncode}: {done.stderr}"

    def is_a_library(self) -> Iterator[str]:
        """A report, its page in a notebook, a table."""
        done = self.env.run(self.env.python, "-W", "error", "-c", _LIBRARY.format(trace=str(TRACE)))
        if done.returncode:
            yield f"import profkit: {done.stderr}"

    def refuses_what_it_lacks(self) -> Iterator[str]:
        """A command whose extra is absent ends with 4 and names it."""
        for extra in sorted(EXTRAS & REFUSED.keys()):
            done = self.env.profkit(*REFUSED[extra])
            if done.returncode != 4 or f"profkit[{extra}]" not in done.stderr:
                yield f"without the extra {extra}: exit code {done.returncode}: {done.stderr}"

    def is_complete(self) -> Iterator[str]:
        """What is installed fits together."""
        if error := pip("check", python=self.env.python):
            yield error

    def is_small(self) -> Iterator[str]:
        """Size and number of what a plain install brings."""
        if (size := self.env.size_bytes()) > MOST_CORE_BYTES:
            yield f"{size / 1e6:.0f} MB are installed, at most {MOST_CORE_BYTES / 1e6:.0f} MB are wanted"
        if len(names := self.env.distributions()) > MOST_DISTRIBUTIONS:
            yield f"{len(names)} distributions are installed: {', '.join(names)}"

    def starts_lean(self) -> Iterator[str]:
        """Modules that a start loads."""

        def run(*words: str) -> str:
            return self.env.run(self.env.python, *words).stderr

        for name, start in starts(TRACE).items():
            yield from (f"{name}: {fault}" for fault in start_faults(start, run))


def faults(env: Environment, folder: Path, *, is_native: bool, formats: tuple[str, ...] = FORMATS) -> Iterator[str]:
    """What is wrong with an environment that holds profkit without extras."""
    checks = Checks(env, folder)
    yield from checks.says_its_version()
    yield from checks.prints_what_the_checkout_does(formats)
    yield from checks.helps()
    yield from checks.doctors(is_native=is_native)
    yield from checks.is_a_library()
    yield from checks.is_complete()


def faults_of_a_plain_install(env: Environment, folder: Path) -> Iterator[str]:
    """What else is wrong where pip took the newest packages: what it brings, what a start loads, what is refused."""
    checks = Checks(env, folder)
    yield from checks.needs_no_more()
    yield from checks.refuses_what_it_lacks()
    yield from checks.is_small()
    yield from checks.starts_lean()
