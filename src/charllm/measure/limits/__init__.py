"""Power and clock limits of a job's GPUs: set while a command runs, and put back whatever happens to it or to us."""
