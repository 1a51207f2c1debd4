"""Try it: sample tools, a script in place of a model, and the proxy in front of them (`demo`)."""
