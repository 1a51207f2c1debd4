"""The serving side: listeners, one request from head to answer, the operator's port, start, reload and stop.

A reader begins with `start.py` and `lifecycle.py`, which wire everything, and `request_cycle.py`, which answers one
request.

listener.py, connection.py, http/   aiohttp's low-level server, and what this proxy makes of requests and responses
bound_route.py                      how the requests of one route go out
listed_routes.py                    routes that a plugin answers
admin/                              the operator's port
workers/                            several processes behind one port, loaded if there are several
reload.py                           takes over a changed config
"""

from proxy.server.lifecycle import Serving
from proxy.server.setup.services import check_hooks
from proxy.server.start import start_serving

__all__ = ["Serving", "check_hooks", "start_serving"]
