"""`python -m bench.site`: the parts of the site that are made: `pictures`, `scene NAME -o FILE`, `pages FOLDER`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.site import decision, pages, scenes, shots


def main() -> int:
    """One of the three."""
    parser = argparse.ArgumentParser(prog="python -m bench.site", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("pictures", help="draw docs/pictures")
    scene = parts.add_parser("scene", help="write a simulated capture")
    scene.add_argument("name", choices=sorted(scenes.SCENES))
    scene.add_argument("-o", dest="path", type=Path, required=True)
    parts.add_parser("pages", help="write the generated pages").add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.part == "scene":
        print(scenes.written(given.name, given.path))
    elif given.part == "pages":
        print("\n".join(str(path) for path in pages.write(given.folder)))
    else:
        for path in [*shots.write(), decision.write()]:
            print(f"{path.relative_to(shots.REPO)}: {path.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
