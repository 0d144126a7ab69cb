"""Bytes to `Trace`. The only place that knows file formats, compression and msgspec."""
