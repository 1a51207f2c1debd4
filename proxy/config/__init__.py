"""Reads the operator's config: checks all of it, and makes frozen values of it (`load.py`)."""
