"""What the extension adds to other verbs."""
