"""The verb `pin`."""
