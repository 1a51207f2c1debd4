"""What an import says of what it found, without I/O."""
