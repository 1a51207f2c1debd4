"""What the command line does with model servers."""
