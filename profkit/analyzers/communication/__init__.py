"""What collectives cost beside compute, and why: gradients reduced too often, in bad buckets, one tensor at a time.

In: facts. Out: findings of one rank; what only several ranks show is in `ranks/findings`. Begin with `overlap`.
"""
