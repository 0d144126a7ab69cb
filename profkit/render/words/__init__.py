"""The words that formats share, one file per document: sentences, labels and rows, as plain text.

In: a document. Out: text and tables without style. Begin with `triage`, which has the words for the parts of a budget.
"""
