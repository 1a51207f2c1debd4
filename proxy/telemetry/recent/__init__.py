"""What the operator can look back at through the operator's port, in bounded memory; values only by `admin.values`."""
