"""The verb."""
