"""Documents as one HTML file that opens offline: no network, no path or host name unless asked for.

In: a document. Out: a page. `page` has the shell, each document a file here and a template in `templates/`; what they
draw is worked out in `parts/`. `static/` has the one script and the one style sheet, built from `report/`. Begin with
`triage.render`.
"""

from __future__ import annotations

from typing import Final

SUFFIXES: Final = (".html", ".htm")
"""How files of this format are called."""
