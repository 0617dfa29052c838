"""Seconds of every op: kernels at a clock, collectives on their links, launches on the host."""
