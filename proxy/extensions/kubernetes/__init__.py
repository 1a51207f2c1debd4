"""The sidecar in Kubernetes manifests: `toolcall-proxy inject`. Serves nothing."""
