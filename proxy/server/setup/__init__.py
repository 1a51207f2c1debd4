"""What a config asks for beside routes, made when a config is taken over: upstreams, services, observers."""
