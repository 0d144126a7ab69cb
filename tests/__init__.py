"""Tests; they mirror profkit/."""
