"""What a capture says inside the script's process: harmless lines on stderr, and never an exception of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.capture.runner import SITE
from tests.capture.running import ROOT, run, run_forked

SECRET = "hf_" + "a1B2" * 8
BAD = f"\\x1b]52;c;eA==\\x07 token={SECRET} \\u202e"
"""As a Python literal holds it."""
NO_WRITE = "sys.stderr = type('E', (), {'flush': lambda _: None})()"

ODD = """
class Odd(Exception):
    def __str__(self):
        raise ValueError("no text")
"""


def assert_harmless(said: str) -> None:
    assert SECRET not in said
    assert [char for char in said if not char.isprintable() and char != "\n"] == []


def started(folder: Path, torch: str, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script under a capture that no runner has begun, with a stand-in for torch."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(torch)
    options = {"folder": str(folder / "out"), "capture_id": "0" * 32}
    env = {**os.environ, "PYTHONPATH": f"{SITE}{os.pathsep}{folder}", "PROFKIT_CAPTURE": json.dumps(options)}
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**env, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "torch",
    [
        f'__version__ = "1.0 {BAD}"',  # too old
        f'class V:\n    def __str__(self): raise RuntimeError("{BAD}")\n__version__ = V()',
        f"{ODD}\nclass V:\n    def __str__(self): raise Odd\n__version__ = V()",
        f'class V:\n    def __str__(self): raise type("{BAD}", (ValueError,), {{}})("x")\n__version__ = V()',
    ],
    ids=["old", "fails", "fails without a text", "fails with an odd type"],
)
def test_why_there_is_no_capture_is_a_harmless_line(torch, tmp_path):
    done = started(tmp_path, torch, "import torch; print(7)")
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
    assert_harmless(done.stderr)
    assert [line[:9] for line in done.stderr.splitlines()] == ["profkit: "]


@pytest.mark.parametrize("closes", ["sys.stderr = None", "sys.stderr.close()", NO_WRITE])
@pytest.mark.parametrize("version", ["'1.0'", "None"])
def test_a_script_without_stderr_runs_as_it_would(closes, version, tmp_path):
    script = f"import sys; {closes}; import torch; print(7)"
    options = {} if version == "'1.0'" else {"PROFKIT_CAPTURE": "no JSON"}
    done = started(tmp_path, f"__version__ = {version}", script, **options)
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


FAILING = """
import os, sys
import torch
from profkit.capture.inside import inject
from profkit.capture.options import Options
{odd}
os.chdir(sys.argv[1])
controller = inject.begin(Options(folder="out", capture_id="1" * 32))
def fails(*_): raise {error}
controller._finder.optimizer_stepped = fails
{before}
controller.optimizer_stepped(object(), False)
print(controller.stage, controller.reason)
"""


ERRORS = {"text": f'RuntimeError("{BAD}")', "no text": "Odd", "odd type": f'type("{BAD}", (ValueError,), {{}})("x")'}
BEFORE = {"open": "pass", "none": "sys.stderr = None", "closed": "sys.stderr.close()"}
"""What has become of stderr."""


SESSION = """
import os, sys
import torch
from profkit.capture import session
from profkit.capture import lines
lines.told = lambda facts, folder: ["rank 0: {bad}\\n  out/{bad}.gz"]
os.chdir(sys.argv[1])
with session("out"):
    {before}
print(7)
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """How each of those scripts ended, in a process of its own: torch is imported once for them."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("stderr")
    scripts = {
        (error, before): FAILING.format(odd=ODD, error=ERRORS[error], before=BEFORE[before])
        for error in ERRORS
        for before in BEFORE
    }
    scripts |= {before: SESSION.format(bad=BAD, before=BEFORE[before]) for before in ("open", "none")}
    calls = []
    for number, script in enumerate(scripts.values()):
        (folder / str(number)).mkdir()
        (folder / f"{number}.py").write_text(script)
        calls.append((str(folder / f"{number}.py"), str(folder / str(number))))
    return dict(zip(scripts, run_forked(folder / "ran", calls), strict=True))


@pytest.mark.torch
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("before", BEFORE)
def test_a_failure_of_the_capture_is_a_harmless_line(error, before, ended):
    done = ended[error, before]
    assert done.code == 0, done.err
    assert done.out.startswith("done the capture failed, but the script runs on (")
    assert_harmless(done.out + done.err)
    assert done.out.count("\n") == 1
    assert done.err.count("profkit: the capture failed") == (before == "open")


@pytest.mark.torch
@pytest.mark.parametrize("before", ["open", "none"])
def test_what_a_session_tells_is_harmless_lines(before, ended):
    done = ended[before]
    assert (done.code, done.out) == (0, "7\n"), done.err
    assert_harmless(done.err)
    if before == "open":
        head, below = done.err.splitlines()
        assert head.startswith("profkit: rank 0: ?]52;c;eA==? token=[redacted]")
        assert below.startswith("  out/?]52")


def test_what_the_script_s_process_loads_is_the_same_as_ours():
    from profkit.capture import beside
    from profkit.shell import clean

    assert beside.plain().clean("a\x1b\n\u202eb") == clean("a\x1b\n\u202eb") == "a? ?b"
    load = (
        "import importlib.util as u, sys; s = u.spec_from_file_location('_plain', sys.argv[1]);"
        "m = u.module_from_spec(s); s.loader.exec_module(m); print(m.clean('a\\x1b'));"
        " assert 'profkit' not in sys.modules"
    )
    done = run(sys.executable, "-I", "-S", "-c", load, str(ROOT / "profkit" / "plain.py"))
    assert done.out == "a?\n", done.err
