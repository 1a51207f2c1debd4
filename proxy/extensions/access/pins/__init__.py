"""Pins: whether a tool is still defined as the operator has approved it."""
