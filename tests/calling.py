"""profkit's command line in processes that start at once: forked from one Python that has loaded profkit.

A start of Python with profkit's modules takes half a second, a fork of one a fiftieth. It is a process all the same,
with a folder, an environment, an exit code, and files for standard output and error. Python's own start, standard input
and what a call imports are the subject of other tests, which start `python -m profkit`.
"""

import atexit
import contextlib
import json
import os
import runpy
import select
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
LOADED = (
    *(f"profkit.cli.{name}" for name in ("triage", "compare", "kernels", "info", "explain", "nsys", "ncu", "schema")),
    *(f"profkit.render.{fmt}.{kind}" for fmt in ("terminal", "json", "markdown") for kind in ("triage", "compare")),
    *("profkit.api", "profkit.pipeline", "profkit.ranks.run", "profkit.ingest.read", "profkit.compare.comparison"),
)


def profkit(
    *words: object, cwd: Path = ROOT, env: Mapping[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """What `python -m profkit words...` did, with nothing on its standard input; raises where it takes too long."""
    server = _server()
    assert server.stdout is not None
    with TemporaryDirectory(prefix="profkit-called-", dir=_folder()) as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        asked = {"words": [*map(str, words)], "cwd": str(cwd), "env": dict(os.environ if env is None else env)}
        server.stdin.write(json.dumps({**asked, "out": str(out), "err": str(err)}) + "\n")
        server.stdin.flush()
        if not select.select([server.stdout], [], [], timeout)[0]:
            _end(server)
            raise subprocess.TimeoutExpired(asked["words"], timeout)
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(asked["words"], code, out.read_text("utf-8"), err.read_text("utf-8"))


@cache
def _folder() -> str:
    folder = TemporaryDirectory(prefix="profkit-calls-")
    atexit.register(folder.cleanup)
    return folder.name


@cache
def _server() -> subprocess.Popen[str]:
    line = [sys.executable, "-m", __name__]
    server = subprocess.Popen(line, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(_end, server)
    return server


def _end(server: subprocess.Popen[str]) -> None:
    _server.cache_clear()
    server.kill()
    server.communicate()


def _serve() -> None:
    for name in LOADED:
        with contextlib.suppress(ImportError):
            import_module(name)
    while line := sys.stdin.readline():
        if os.fork() == 0:
            _become(json.loads(line))
            return  # by profkit's exit, as any process of Python ends
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(os.wait()[1]))


def _become(asked: dict[str, str]) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream, place in ((1, "out"), (2, "err")):
        os.dup2(os.open(asked[place], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    os.closerange(3, 64)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the other holds what else was asked
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    sys.argv = ["profkit", *asked["words"]]
    runpy.run_module("profkit", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve()
