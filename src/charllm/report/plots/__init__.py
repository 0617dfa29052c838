"""Figures of a page drawn in characters: the terminal's own front end, beside that of the browser."""
