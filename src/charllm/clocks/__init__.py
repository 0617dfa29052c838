"""Watts and degrees to hertz."""
