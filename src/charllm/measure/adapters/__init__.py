"""Training programs: how a run becomes the command that trains it, and how the program's log is read."""
