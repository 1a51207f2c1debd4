"""Broken keywords become violations: code, expected, actual, hint."""
