"""Prompt text and vendor exports made from schemas."""
