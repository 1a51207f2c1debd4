"""The whole cast, started once for a process that runs tests: servers, the proxy, recording sockets on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.parties.environment import ADMIN, needs, proxy, servers
from tests.parties.tap import Tap, taps


@dataclass(frozen=True)
class Stage:
    """Who can be reached where. `direct` are the servers' own ports; a client asks at `front`, the proxy at `back`."""

    direct: dict[str, int]
    front: dict[str, Tap]
    back: dict[str, Tap]

    def urls(self, *names: str) -> dict[str, str]:
        """Where clients reach the servers through the proxy."""
        return {name: f"http://127.0.0.1:{self.front[name].port}/{name}" for name in names or self.front}

    def lenient_urls(self, *names: str) -> dict[str, str]:
        """The same at the repair level `lenient`."""
        return {name: f"{url}/lenient" for name, url in self.urls(*names).items()}

    def direct_urls(self, *names: str) -> dict[str, str]:
        """Where clients reach the servers themselves."""
        return {name: f"http://127.0.0.1:{self.direct[name]}/mcp" for name in names or self.direct}


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    needs("py2", "py1", "node")
    with servers("py2", "node", "everything") as direct, taps(direct) as back:
        upstreams = "".join(f"  {name}: {{url: 'http://127.0.0.1:{tap.port}'}}\n" for name, tap in back.items())
        routes = "".join(
            f"  - {{path: /{name}{path}, upstream: {name}, upstream_path: /mcp, protocol: mcp, repair: {level}}}\n"
            for name in direct
            for path, level in (("", "standard"), ("/lenient", "lenient"))
        )
        config = tmp_path_factory.mktemp("proxy") / "config.yaml"
        config.write_text(f"version: 1\n{ADMIN}upstreams:\n{upstreams}routes:\n{routes}")
        with proxy(config) as port, taps(dict.fromkeys(direct, port)) as front:
            yield Stage(direct, front, back)
