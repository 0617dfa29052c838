"""The plan: the best strategy for a job under limits, why it is the best, and the flags that ask for it."""
