"""Listed tools: their policies, the names that clients see, a search among many. Pure."""
