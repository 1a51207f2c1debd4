"""Values that a schema accepts, best first, within a bound of work."""
