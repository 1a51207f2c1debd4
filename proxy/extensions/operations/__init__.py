"""HTTP operations: OpenAPI descriptions, and arguments in path, query, headers, cookies and forms."""
