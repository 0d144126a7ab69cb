"""Findings that only several ranks show: late ranks and slow links, uneven tokens, idle pipeline stages.

In: nothing. Out: kinds, as of any family beside this folder. Begin with `stragglers`.
"""
