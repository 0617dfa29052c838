"""Seconds of collectives and sends on the links between GPUs."""
