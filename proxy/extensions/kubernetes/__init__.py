"""The sidecar in Kubernetes manifests: what `toolcall-proxy inject` does to them. Serves nothing."""
