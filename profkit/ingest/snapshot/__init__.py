"""Memory snapshots of PyTorch's allocator (`torch.cuda.memory._dump_snapshot`), which are no traces.

In: a pickle. Out: a `Snapshot`. `plain_pickle` reads pickles of plain values and runs nothing, `reader` takes out what
is known and adds it up.
"""
