"""The pure core: no I/O, no clock, no randomness, no logging, no async (floor 0)."""
