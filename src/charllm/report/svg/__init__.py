"""Figures of a page as SVG files, for papers and slides: one function a kind, as in the browser and in the terminal."""
