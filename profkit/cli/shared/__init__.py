"""What several commands share: output, progress, percentages, stderr lines, the Nsight tools' way of running.

In: options as click gives them. Out: calls of the library, lines for the user. Begin with `output.show`.
"""
