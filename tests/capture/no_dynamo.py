"""Import it before torch: its compiler costs each process two seconds."""

import workloads.no_compiler  # noqa: F401
