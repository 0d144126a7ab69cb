"""What the site of docs/ has that nobody writes by hand: pictures, simulated captures, references, links between pages.

In: the program itself and `traces/`. Out: `docs/pictures` (`python -m bench.site pictures`, committed), `docs/reference`
(made by each build, not committed), and for sphinx the `setup` below. Begin with `__main__`.
"""

from __future__ import annotations

from typing import Any


def setup(app: Any) -> dict[str, Any]:
    """What sphinx calls: pages are written before they are looked for, and names of documents become links."""
    from bench.site import links, pages

    app.connect("builder-inited", lambda app: pages.write(app.srcdir))
    app.connect("source-read", links.link)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
