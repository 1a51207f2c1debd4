"""One HTTP message: body, headers, access, responses, WebSocket."""
