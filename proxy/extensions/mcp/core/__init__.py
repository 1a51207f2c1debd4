"""What a server lists: the policies of its tools, the names that clients see, a search among many. Pure."""
