"""What an agent may ask of traces below one folder, and the server that it asks: `profkit mcp`.

In: the name of a tool and its arguments, from a client of the Model Context Protocol. Out: a page of text, with the
numbers' ids, or a plain sentence on what is wrong. Begin with `tools`, which lists what can be asked; `root` says which
paths are allowed, `evidence` resolves an id to its number. `server` alone knows the protocol, and imports its package.
Nothing here writes a file, starts a program or opens a connection.
"""
