"""The declarations of the config's keys: from them come the schema, the readers and the reference page."""
