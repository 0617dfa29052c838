"""A run while it is recorded: what it is like now, on a terminal and for Prometheus."""
