"""The bundled sample tools: small services that really compute, for `toolcall-proxy demo`, the docs and the tests.

They stand on the other side of the wire: nothing here imports the proxy, and the proxy knows them only by URL. They
are as strict as tools in the field are (a Go service refuses `"48.85"` where it wants a float64) and complain the way
GoMind tools do (`{"success": false, "error": {code, message, category, retryable, details}}`).

`server` listens and finds the tool; `weather`, `currency`, `files` and `arithmetic` each hold one tool; `request` reads
a body into a typed request; `answer` is what a tool says.
"""
