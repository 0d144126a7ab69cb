"""Trains a small vision-language model by a recipe; its layers are flags: precision, batching, fusion, packing, system.

Begin with `options`, which has the layers in the order of the published study; `training` runs them.
"""
