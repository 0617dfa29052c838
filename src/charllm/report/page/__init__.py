"""What each page shows: one file a question, and one file a page that puts them in order."""
