"""The fate of a call, reduced to the parts that are compared."""
