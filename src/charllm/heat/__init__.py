"""Watts to degrees: the heat network of a node, and what a node draws beside its GPUs."""
