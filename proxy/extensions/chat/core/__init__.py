"""Finds tools in requests and calls in answers, by API, and changes the calls. Pure."""
