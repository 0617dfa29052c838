"""Recordings of other tools as runs. A format is a file here, a line in READERS (run.py) and its name in FORMATS."""
