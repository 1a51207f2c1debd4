"""OpenAPI descriptions as configs."""
