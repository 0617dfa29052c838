"""From readings to the constants of a GPU."""
