"""What to change in a schema, after what models get wrong with it."""
