"""`make schemas`: keep the schemas of this version. Refuses what breaks a reader of an earlier one.

Once a version is published its folder stays as it is: what adds to a document belongs to the next minor version.
"""

from __future__ import annotations

import json
import sys

from profkit import __version__
from profkit.render.schema import SCHEMAS, schema
from tests.frozen import HERE, frozen, minor, versions
from tests.frozen.growth import changes


def main() -> int:
    """Write the folder of this version; 1, with each reason, where a document of an earlier one would break."""
    present = {name: schema(name) for name in SCHEMAS}
    here = minor(__version__)
    broken = [
        f"{name} {place} (was promised in {version})"
        for version in versions()
        for name, old in frozen(version).items()
        for place in (changes(old, present[name]).broken if name in present else [": removed"])
        if version != here
    ]
    for line in broken:
        print(line)
    if broken:
        return 1
    kept = frozen(here)
    for name, now in present.items():
        for line in changes(kept[name], now).added if name in kept else [": new"]:
            print(f"{name} {line}")
        (HERE / here).mkdir(exist_ok=True)
        (HERE / here / f"{name}.schema.json").write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
