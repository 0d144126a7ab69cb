"""The site of docs/, by sphinx (`make docs`): Markdown by myst-parser, look by furo, references by bench.site."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from profkit import __version__

project = "profkit"
author = "profkit authors"
copyright = "profkit authors"  # noqa: A001 - sphinx's own name
release = version = __version__

extensions = ["myst_parser", "bench.site"]
exclude_patterns = ["_build", "conf.py", "notebook.ipynb"]
source_suffix = {".md": "markdown"}
root_doc = "index"
nitpicky = True
myst_heading_anchors = 3
suppress_warnings: list[str] = []

html_theme = "furo"
html_title = "profkit"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_extra_path: list[str] = []
html_static_path = ["_static"]
html_css_files = ["site.css"]
pygments_style = "friendly"
pygments_dark_style = "monokai"
