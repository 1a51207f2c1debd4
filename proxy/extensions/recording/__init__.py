"""Recorded calls: lines of JSON with arguments as they came (or stand-ins for them), and the fate of each."""
