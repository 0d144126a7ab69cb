"""torch.profiler's (Kineto) traces: JSON of any size to columns.

In: chunks of JSON. Out: a `RawTrace`: batches of columns, and the metadata around them. Begin with `reader.read_trace`;
`fast_decoder` reads usual events, `columns` and `sparse_columns` all others.
"""
