"""Questions to a traced run, one file a question."""
