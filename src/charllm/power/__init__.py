"""Activity to watts."""
