"""The verbs of the extension, and serving without a config."""
