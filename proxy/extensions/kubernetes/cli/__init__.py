"""The verb of the extension."""
