"""Is this machine, and are all nodes of a job, fit to be measured? Facts of each node, then checks over all of them."""
