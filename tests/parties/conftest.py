"""The whole cast, started once for a process that runs tests: servers, the proxy, recording sockets on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from tests.parties.environment import ADMIN, needs, proxy, servers
from tests.parties.tap import Tap, taps

# Every server is behind one route of each kind; what its route says beside that.
# All clients of a run send the same mistakes from one address, which would count together.
KINDS: Final = {
    "clean": "",
    "mistakes": ", attempts: {address: 'off'}",
    "lenient": ", repair: lenient",
    "collapsed": ", mcp: {collapse: {name: shop, auto_expand: dispatch}}",
}


@dataclass(frozen=True)
class Stage:
    """The addresses of all parties. `direct` are the servers' own ports; by server and kind, as in `high-clean`, a
    client calls `front` and the proxy calls `back`."""

    direct: dict[str, int]
    front: dict[str, Tap]
    back: dict[str, Tap]

    def url(self, server: str, kind: str = "clean") -> str:
        """Returns where clients reach a server through the proxy."""
        return f"http://127.0.0.1:{self.front[f'{server}-{kind}'].port}/{server}-{kind}"

    def direct_url(self, server: str) -> str:
        """Returns where clients reach it without."""
        return f"http://127.0.0.1:{self.direct[server]}/mcp"


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    needs("py2", "py1", "node")
    with servers("py2", "node", "everything") as direct:
        names = {f"{server}-{kind}": (port, more) for server, port in direct.items() for kind, more in KINDS.items()}
        with taps({name: port for name, (port, _) in names.items()}) as back:
            upstreams = "".join(f"  {name}: {{url: 'http://127.0.0.1:{tap.port}'}}\n" for name, tap in back.items())
            routes = "".join(
                f"  - {{path: /{name}, upstream: {name}, upstream_path: /mcp, protocol: mcp{more}}}\n"
                for name, (_, more) in names.items()
            )
            config = tmp_path_factory.mktemp("proxy") / "config.yaml"
            config.write_text(f"version: 1\n{ADMIN}upstreams:\n{upstreams}routes:\n{routes}")
            with proxy(config) as port, taps(dict.fromkeys(names, port)) as front:
                yield Stage(direct, front, back)
