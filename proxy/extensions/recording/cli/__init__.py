"""The verbs of the extension, and what they read."""
