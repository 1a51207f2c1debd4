"""The repair engine, and the generated quick repairs beside it."""
