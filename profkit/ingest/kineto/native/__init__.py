"""A scanner of events in C, for those who have it: the same batches as `kineto.batch` makes, some four times as fast.

Where it stands: beneath `batch.decode_batch`, its only caller. In: the JSON text of an array of
whole events, as `split.pieces` cuts it (decompressed by `ingest.bytes`; what surrounds the events stays with `reader`).
Out: a `Batch` of `ingest.assemble.raw`, the same to the last bit, or None.

None is the rule that it is built on: it takes a batch only where it is certain of every byte (plain JSON in UTF-8, no
key twice, whole numbers and decimals of usual length, the categories and arguments of torch.profiler). Of anything else
it declines, and Python reads the batch: odd files, damaged ones and all errors are the same with it and without it.

`decode` takes the answers of `profkit/native` apart. Of rows that few batches have (collectives, embeddings,
counters, names of threads) the scanner gives the text back, for the functions of `sparse_columns`.
"""
