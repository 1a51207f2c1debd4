"""Makes the parts of a new config in addition to routes: upstreams, services, observers."""
