"""Values only: arrays, intervals, tables, the trace, findings and the report. No I/O, no thresholds of blame."""
