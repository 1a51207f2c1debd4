"""The frozen values that every room uses, and the error codes."""
