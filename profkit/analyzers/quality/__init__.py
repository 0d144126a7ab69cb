"""Can this capture be trusted? Run first: what fails here caps the confidence of everything else (docs/method.md)."""

from profkit.analyzers.quality.checks import ANALYZER, checks, confidence_cap, meanwhile, notes
from profkit.analyzers.quality.measured import Quality, measure

__all__ = ["ANALYZER", "Quality", "checks", "confidence_cap", "meanwhile", "measure", "notes"]
