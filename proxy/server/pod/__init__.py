"""The proxy in a Kubernetes pod: what it tells those who look at the pod."""
