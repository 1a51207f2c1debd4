"""JSON Schema as data: drafts, dialects, the node graph, OpenAPI operations."""
