"""What becomes of a call, reduced to what two configs are compared by."""
