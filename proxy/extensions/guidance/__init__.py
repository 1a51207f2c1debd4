"""What agents read of tools before they call: prompt text, vendor exports, and where both are served."""
