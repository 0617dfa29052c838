"""What a run gave, simulated or measured: one type, its metrics, where they come from, and how it is stored."""
