"""JSON Schema as data: drafts, dialects, formats, patterns and the node graph."""
