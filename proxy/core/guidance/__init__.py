"""Examples, prompt text and vendor exports made from schemas."""
