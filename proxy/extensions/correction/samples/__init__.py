"""The bundled sample tools: small services that compute real answers, for `toolcall-proxy demo`, the docs and the
tests.

They are outside of the proxy: nothing here imports it, and the proxy knows them only by URL. They are as strict as real
tools (a Go service refuses `"48.85"` where it wants a float64) and report errors as GoMind tools do (`{"success":
false, "error": {code, message, category, retryable, details}}`).

`server` listens and finds the tool. `weather` and `files` hold one tool each, `numbers` two. `messages` reads a body
into a typed request and builds the tools' answers. `model` is a script in place of a model.
"""
