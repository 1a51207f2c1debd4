"""Pins: whether a tool still has the definition that the operator has approved."""
