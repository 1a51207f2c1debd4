"""The model endpoint as the config has it, and what a prompt may hold. Pure values."""
