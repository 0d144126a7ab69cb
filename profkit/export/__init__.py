"""Traces and what was found in them, written for other tools: Chrome trace JSON, tables, flame charts.

In come files of traces with the rows that profkit draws of them (`profkit.model.documents.tracks`), or a `Trace`. Out
come chunks of bytes, for one file. Begin with `document`, which writes the JSON: the events of the files as they stand
(`original`), put on one clock where there are several, cut to a window, and profkit's own rows beside them (`own`).
`tables` and `speedscope` are the other formats.
"""
