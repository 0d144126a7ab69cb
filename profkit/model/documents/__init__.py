"""The documents profkit writes, one file each: values for the renderers, and what `docs/schema` describes.

In: findings, budgets and tables of `profkit.model`. Out: a report, a comparison, a scaling audit, a handover.
Begin with `report.py`.
"""
