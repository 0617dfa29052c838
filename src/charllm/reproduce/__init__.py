"""A publication repeated in one command: its runs, its figures, and what it found, judged."""
