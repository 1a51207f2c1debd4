"""What `serve` does in the process above the workers, and in each of them."""
