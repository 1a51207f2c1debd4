"""What a route with `model` says."""
