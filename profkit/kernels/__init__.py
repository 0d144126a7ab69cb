"""Kernel profiles to assessments: what limits a launch, on what numbers, and what to change."""
