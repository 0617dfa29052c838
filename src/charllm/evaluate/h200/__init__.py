"""Own readings of H200 boards (`readings/`), the runs that were read, and their scores."""
