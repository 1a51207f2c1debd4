"""The serving side: listeners, one request from head to answer, the operator's port, start, reload and stop.

A reader begins with `start.py` and `lifecycle.py`, which wire everything, and `request_cycle.py`, which answers one
request.

`listener.py`, `connection.py` and `http/` are aiohttp's low-level server, and this proxy's requests and responses.
`bound_route.py` makes the outgoing requests of one route.
`listed_routes.py` has the routes that a plugin answers.
`admin/` is the operator's port.
`reload.py` applies a changed config.
"""

import proxy.server.http  # noqa: F401 - first: it says when aiohttp's client is loaded
from proxy.server.lifecycle import Serving
from proxy.server.setup.services import check_hooks
from proxy.server.start import start_serving

__all__ = ["Serving", "check_hooks", "start_serving"]
