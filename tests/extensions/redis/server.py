"""A real redis-server (or valkey-server) on a free loopback port, started for a test and ended by its pid."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from redis import Redis

from proxy.extensions.redis.redis_section import RedisSettings
from tests.ports import hold_port

BINARY = shutil.which("redis-server") or shutil.which("valkey-server")
_HOW = "no redis-server (or valkey-server) here: apt-get install redis-server"


def needs_server() -> None:
    """Skips a test where there is no server to start; on CI, where there has to be one, the test fails."""
    if BINARY is None:
        if os.environ.get("CI") == "true":
            pytest.fail(_HOW)
        pytest.skip(_HOW)


def take_port() -> int:
    """A port of a server, held together with the one on which a cluster's nodes talk to each other."""
    return hold_port(above=10_000)


@dataclass
class Server:
    """One server. `words` are further options; `data` keeps nothing unless they say so."""

    folder: Path
    words: tuple[str, ...] = ()
    port: int = field(default_factory=take_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> RedisSettings:
        """Returns how the store reaches it, with time enough for a busy machine."""
        return RedisSettings(hosts=(("127.0.0.1", self.port),), connect_timeout=2, operation_timeout=5)

    @property
    def url(self) -> str:
        """The same for a config."""
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts it and waits until it answers."""
        assert BINARY is not None
        quiet = ["--save", "", "--appendonly", "no", "--logfile", str(self.folder / f"{self.port}.log")]
        words = [BINARY, "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder), *quiet]
        self.process = subprocess.Popen([*words, *self.words])
        self.wait()

    def wait(self) -> None:
        """Waits until it answers: by then it listens at all its ports and sockets, not only at the first of them."""
        for _ in range(3000):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 10) as asking:
                asking.sendall(b"PING\r\n")
                if asking.recv(1):  # also -NOAUTH, from a server with passwords
                    return
            time.sleep(0.02)
        raise AssertionError((self.folder / f"{self.port}.log").read_text())

    def kill(self) -> None:
        """Ends it as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def client(self) -> Redis:
        """A client for the test itself."""
        return Redis(port=self.port)


@contextlib.contextmanager
def server(folder: Path, *words: str) -> Iterator[Server]:
    """A running server, ended at the end."""
    needs_server()
    made = Server(folder, words)
    made.start()
    try:
        yield made
    finally:
        made.kill()


def pass_time(client: Redis, seconds: float) -> None:
    """Makes `seconds` pass for every key: what would be over by then is, the rest lives that much shorter."""
    for name in client.scan_iter():
        left = client.pttl(name) - seconds * 1000
        if left <= 0:
            client.delete(name)
        else:
            client.pexpire(name, int(left))
