"""The op bench: what every kind of op costs in seconds, watts, clock and degrees on this GPU."""
