"""Traces of real executions, as other programs write them."""
