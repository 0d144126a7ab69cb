"""`.ci/python`: an interpreter counts if it starts and has the right version; else one line says why there is none."""

import subprocess
from pathlib import Path

import pytest

from tests.release.environments import ROOT


def found(folder: Path, version: str, *names: str, prints: str) -> subprocess.CompletedProcess[str]:
    """What the script gives where these programs are on PATH, and nothing of another release of Debian is to be had."""
    path = folder / "bin"
    path.mkdir()
    for name in names:
        (path / name).write_text(f"#!/bin/sh\n{prints}\n")
        (path / name).chmod(0o755)
    env = {"PATH": f"{path}:/usr/bin:/bin", "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    (path / "apt-get").write_text("#!/bin/sh\nexit 1\n")
    (path / "apt-get").chmod(0o755)
    return subprocess.run(
        [ROOT / ".ci" / "python", version], capture_output=True, text=True, check=False, env=env, timeout=60
    )


def test_the_one_on_path_is_taken(tmp_path: Path) -> None:
    done = found(tmp_path, "3.77", "python3.77", prints="echo 3.77")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path}/bin/python3.77\n", "")


@pytest.mark.parametrize("prints", ["exit 127", "echo 3.12"])
def test_one_that_does_not_start_or_is_another_is_not(tmp_path: Path, prints: str) -> None:
    done = found(tmp_path, "3.77", "python3.77", prints=prints)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("python3.77: none: not on PATH")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("version", ["3", "3.x", "3.14; id", "../3.14"])
def test_a_version_is_a_version(tmp_path: Path, version: str) -> None:
    done = found(tmp_path, version, prints="")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"python{version}: a version is written 3.14\n"
