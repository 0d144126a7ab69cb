"""Sequences of unequal length: how they are made into batches, and a small transformer that reads them."""
