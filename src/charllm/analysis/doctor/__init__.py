"""Which GPU, link, node or host of a run is weak, why, what it costs, and what to do about it."""
