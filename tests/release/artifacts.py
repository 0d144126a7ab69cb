"""The wheel and the source package: what they hold, how large they are, what they say of themselves."""

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path
from typing import Final

from hatch_build import FOLDER, NAME
from profkit import __version__
from tests.release.environments import ROOT, VERSIONS, created, pip

MOST_WHEEL_BYTES: Final = 2_000_000
"""Of a wheel, compressed: 0.2.0 has 1.5 MB."""
MOST_INSTALLED_BYTES: Final = 5_500_000
"""Of profkit alone, installed, without compiled Python: 0.2.0 has 3.8 MB."""
LIBRARY: Final = f"{FOLDER}/{NAME}"
BESIDE: Final = {
    *("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt", "PKG-INFO"),
    ".gitignore",
}
"""What a source package has beside the package."""


@dataclass(frozen=True, slots=True)
class Built:
    """What `hatchling build` wrote."""

    wheel: Path
    source: Path


def built(work: Path) -> Built | str:
    """Build both from the checkout, or say why not."""
    tools, error = created(work / "tools", Path(sys.executable), ["hatchling"])
    if error:
        return error
    done = tools.run(tools.folder / "bin" / "hatchling", "build", "-d", work / "dist", cwd=ROOT)
    if done.returncode:
        return done.stderr.strip()[-2000:]
    (wheel,) = (work / "dist").glob("*.whl")
    (source,) = (work / "dist").glob("*.tar.gz")
    return Built(wheel=wheel, source=source)


def built_without_compiler(source: Path, work: Path) -> Path | str:
    """The wheel that pip makes of the source package where there is no C compiler, or why not."""
    env = {name: value for name, value in os.environ.items() if name != "CC"} | {"PATH": str(work / "nothing")}
    error = pip("wheel", "--quiet", "--no-deps", "--no-cache-dir", "-w", work / "plain", source, env=env)
    return error or next((work / "plain").glob("*.whl"))


def is_native(wheel: Path) -> bool:
    """Whether a wheel is for one kind of machine, as one with the compiled scanner is."""
    return not wheel.name.endswith("-py3-none-any.whl")


def tracked() -> set[str]:
    """Files of the package as git has them."""
    done = subprocess.run(["git", "ls-files", "profkit"], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.splitlines())


def wheel_faults(wheel: Path, package: set[str]) -> Iterator[str]:
    """What is wrong with a wheel, whose package should have these files."""
    with zipfile.ZipFile(wheel) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
        info = f"profkit-{__version__}.dist-info"
        metadata = archive.read(f"{info}/METADATA") if f"{info}/METADATA" in sizes else b""
    own = {name for name in sizes if not name.startswith(f"{info}/")}
    yield from _differences("the wheel", own - {LIBRARY}, package)
    if f"{info}/licenses/LICENSE" not in sizes:
        yield "the wheel has no LICENSE"
    if is_native(wheel) != (LIBRARY in own):
        yield f"{wheel.name} {'has' if LIBRARY in own else 'lacks'} the compiled scanner"
    if (size := wheel.stat().st_size) > MOST_WHEEL_BYTES:
        yield f"the wheel has {size:,} bytes, at most {MOST_WHEEL_BYTES:,} are wanted"
    if (installed := sum(sizes.values())) > MOST_INSTALLED_BYTES:
        yield f"profkit installs {installed:,} bytes, at most {MOST_INSTALLED_BYTES:,} are wanted"
    yield from metadata_faults(metadata)


def metadata_faults(metadata: bytes) -> Iterator[str]:
    """What is wrong with what a package says of itself."""
    said = message_from_bytes(metadata)
    if said["Version"] != __version__:
        yield f"the metadata says version {said['Version']}, the program {__version__}"
    named = {value.rpartition(" ")[2] for value in said.get_all("Classifier", []) if "Python :: 3." in value}
    if named != set(VERSIONS):
        yield f"the classifiers name Python {', '.join(sorted(named))}; tried are {', '.join(VERSIONS)}"
    if said["Requires-Python"] != f">={VERSIONS[0]}":
        yield f"Requires-Python is {said['Requires-Python']}"
    if not said.get_payload():
        yield "no README is shown"


def source_faults(source: Path, package: set[str]) -> Iterator[str]:
    """What is wrong with a source package."""
    with tarfile.open(source) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    yield from _differences("the source package", names, package | BESIDE)


def _differences(what: str, has: Iterable[str], wanted: Iterable[str]) -> Iterator[str]:
    yield from (f"{what} lacks {name}" for name in sorted(set(wanted) - set(has)))
    yield from (f"{what} has {name}, which git does not" for name in sorted(set(has) - set(wanted)))


def page_faults(dist: Built, work: Path) -> Iterator[str]:
    """What a package index would not take, by twine."""
    tools, error = created(work / "twine", Path(sys.executable), ["twine"])
    done = None if error else tools.run(tools.folder / "bin" / "twine", "check", "--strict", dist.wheel, dist.source)
    if done is None or done.returncode:
        yield error or (done.stdout + done.stderr if done else "")
