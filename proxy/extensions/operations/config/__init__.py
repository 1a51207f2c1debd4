"""The config of operations and of parameters beside the body."""
