"""HTTP Basic (RFC 7617) for toolcall-proxy: users of the config, a route's key, a verb and a metric."""
