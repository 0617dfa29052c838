"""Files by which a stored folder is known, beside those of its result."""

STUDY_FILE = "study.json"
CASE_FILE = "case.json"
"""The outcome of a case; a folder that holds it is finished."""
HEADER_FILE, SAMPLES_FILE = "recording.json", "samples.csv"
"""Of a recording."""
