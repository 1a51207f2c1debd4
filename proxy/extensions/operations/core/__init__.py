"""What an operation is, how its parameters are written, and what no request can hold."""
