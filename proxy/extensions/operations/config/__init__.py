"""What the config says of operations and of parameters beside the body."""
