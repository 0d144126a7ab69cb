"""torch.profiler's (Kineto) traces: JSON of any size to columns.

In: chunks of JSON. Out: a `RawTrace`: batches of columns, and the metadata around them. Begin with `reader.read_trace`;
`events` reads their members, `arguments` what the columns of each need, `columns` and `sparse_columns` make these.
"""
