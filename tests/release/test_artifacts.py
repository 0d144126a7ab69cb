"""What is wrong with a wheel or a source package is told: a file too many, one too few, another version, too large."""

import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from profkit import __version__
from tests.release import artifacts
from tests.release.__main__ import oldest
from tests.release.artifacts import BESIDE, LIBRARY, metadata_faults, source_faults, wheel_faults
from tests.release.environments import EXTRAS
from tests.release.extras import TRIALS

PACKAGE = {"profkit/__init__.py", "profkit/py.typed"}
INFO = f"profkit-{__version__}.dist-info"
CLASSIFIERS = "".join(f"Classifier: Programming Language :: Python :: 3.{n}\n" for n in (11, 12, 13, 14))
HEAD = f"Metadata-Version: 2.4\nName: profkit\nVersion: {__version__}\nRequires-Python: >=3.11\n"
METADATA = f"{HEAD}{CLASSIFIERS}\nWhat it is.\n"


def wheel(folder: Path, tag: str = "py3-none-any") -> Path:
    path = folder / f"profkit-{__version__}-{tag}.whl"
    held = dict.fromkeys(PACKAGE, "") | {f"{INFO}/METADATA": METADATA, f"{INFO}/licenses/LICENSE": "MIT"}
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in held.items():
            archive.writestr(name, text)
    return path


def with_file(path: Path, name: str, text: str = "x") -> Path:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, text)
    return path


def told(faults: Iterator[str]) -> str:
    return "\n".join(faults)


def test_a_wheel_as_it_should_be(tmp_path: Path) -> None:
    assert told(wheel_faults(wheel(tmp_path), PACKAGE)) == ""
    native = with_file(wheel(tmp_path, tag="py3-none-linux_x86_64"), LIBRARY)
    assert told(wheel_faults(native, PACKAGE)) == ""


def test_a_file_too_many_and_one_too_few(tmp_path: Path) -> None:
    path = with_file(wheel(tmp_path), "profkit/left.part")
    said = told(wheel_faults(path, PACKAGE | {"profkit/units.py"}))
    assert said == "the wheel lacks profkit/units.py\nthe wheel has profkit/left.part, which git does not"


def test_the_scanner_and_the_tag_go_together(tmp_path: Path) -> None:
    assert "has the compiled scanner" in told(wheel_faults(with_file(wheel(tmp_path), LIBRARY), PACKAGE))
    assert "lacks the compiled scanner" in told(wheel_faults(wheel(tmp_path, tag="py3-none-linux_x86_64"), PACKAGE))


def test_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MOST_WHEEL_BYTES", 10)
    monkeypatch.setattr(artifacts, "MOST_INSTALLED_BYTES", 20)
    said = told(wheel_faults(wheel(tmp_path), PACKAGE))
    assert "at most 10 are wanted" in said
    assert "at most 20 are wanted" in said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (f"Version: {__version__}", "Version: 0.0.9", "the metadata says version 0.0.9, the program"),
        ("Python :: 3.14", "Python :: 3.10", "the classifiers name Python 3.10, 3.11, 3.12, 3.13; tried are 3.11, "),
        (">=3.11", ">=3.9", "Requires-Python is >=3.9"),
        ("What it is.\n", "", "no README is shown"),
    ],
)
def test_what_a_package_says_of_itself(old: str, new: str, said: str) -> None:
    assert told(metadata_faults(METADATA.encode())) == ""
    assert said in told(metadata_faults(METADATA.replace(old, new, 1).encode()))


def test_a_source_package(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    (tmp_path / "file").write_text("x")
    with tarfile.open(path, "w:gz") as archive:
        for name in (PACKAGE | BESIDE | {"tests/test_x.py"}) - {"LICENSE"}:
            archive.add(tmp_path / "file", f"profkit-{__version__}/{name}")
    said = told(source_faults(path, PACKAGE))
    assert said == "the source package lacks LICENSE\nthe source package has tests/test_x.py, which git does not"


def test_every_extra_has_a_trial() -> None:
    assert set(TRIALS) >= EXTRAS


def test_the_oldest_packages_are_the_lower_bounds() -> None:
    pins = oldest()
    assert "pandas==2.2.2" in pins
    assert all(pin.count("==") == 1 and ">" not in pin for pin in pins)
