"""Pages: one file of HTML that needs nothing beside itself."""

SUFFIXES = (".html", ".htm")
