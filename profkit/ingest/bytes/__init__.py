"""Bytes from wherever they lie: compressed files, pipes, object stores.

In: a path, a stream or a URL. Out: chunks of plain bytes, or a file in a temporary folder. Begin with
`bytesource.read_chunks`.
"""
