"""The keys of a route with `model`."""
