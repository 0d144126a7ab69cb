"""profkit: where the time of a PyTorch training step goes, what the bottleneck is, and what to run next."""

__version__ = "0.1.0"
