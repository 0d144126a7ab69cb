"""What pages are made of, worked out: tables, bars, rows of intervals, as plain values for the templates.

In: documents. Out: texts, numbers and positions; no HTML. Begin with `tables`.
"""
