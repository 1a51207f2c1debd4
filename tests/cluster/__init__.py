"""`make cluster`: a real single-node Kubernetes on this machine, and the chart tried on it."""
