"""The serving side: listeners, one request from head to answer, the admin port, start, reload and stop.

`serving.py` wires everything and is where a reader begins; `handler.py` tells one request; `listener.py`, `http1/`,
`gate.py` and `heads.py` are our own HTTP/1.1 towards clients, `body.py`, `headers.py` and `replies.py` what this proxy
makes of it; `lane.py` knows how a route's requests go out; `middleware.py` loads hooks; `reload.py` takes over a
changed config; `admin.py` is the operator's port; `fleet.py` is several processes behind one port, loaded where there
are several.
"""

from proxy.app.middleware import check_hooks
from proxy.app.serving import Serving

__all__ = ["Serving", "check_hooks"]
