"""What a release says of itself agrees in all its places."""

import tomllib

from profkit import __version__
from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_version_is_the_same_in_each_place() -> None:
    assert PROJECT["version"] == __version__
    assert f"\n## [{__version__}] - 20" in CHANGELOG


def test_what_is_new_is_read_in_a_minute() -> None:
    section = CHANGELOG.partition(f"\n## [{__version__}]")[2].partition("\n## ")[0]
    words = [word for word in section.split() if any(letter.isalnum() for letter in word)]
    assert 80 < len(words) <= 250
