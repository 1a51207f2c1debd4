"""Files as they are written: YAML with places, `${...}` references, secrets, and the check of the structure."""
