"""The config as the operator wrote it: read, checked whole, and handed on as frozen values."""
