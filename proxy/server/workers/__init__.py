"""Several processes (workers) behind one port: start, supervision, and the operator's port above them."""
