"""Files to traces: the only place that knows formats, compression and JSON.

In: paths, folders, patterns, URLs. Out: a `Trace` for each process that a source holds, or an error that names the
place in the file. Begin with `read.read_traces`; `sources` lists the kinds of files, `assemble` makes a `Trace` of what
each kind's reader found.
"""
