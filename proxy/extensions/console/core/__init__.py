"""Improvements of schemas, by the mistakes that models make."""
