"""What to make of a result: which single change helps most, and what would make a run fit in memory."""
