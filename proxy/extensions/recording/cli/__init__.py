"""The verbs of the extension, and their input."""
