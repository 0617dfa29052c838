"""Seconds, watts and degrees of distributed LLM training."""

__version__ = "0.1.0"
