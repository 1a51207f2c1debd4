"""HTTP operations: OpenAPI descriptions, and arguments that stand in path, query, headers, cookies and forms."""
