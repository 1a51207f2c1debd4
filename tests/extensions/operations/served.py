"""A described service behind the proxy, imported as `import openapi` does it, for the tests of whole services."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import yaml

from proxy.config.load import load
from proxy.core.model.values import JsonValue
from proxy.extensions.operations.importing.files import CONFIG, make_files, write_files
from proxy.extensions.operations.importing.openapi import Choice, harvest_operations
from proxy.server import start_serving
from tests.serving.wire import Seen, exchange

TRIPS: JsonValue = yaml.safe_load((Path(__file__).parent / "trips.yaml").read_text(encoding="utf-8"))


# The placeholder of the service's address in an imported config, which is made once for all tests of a description.
_UPSTREAM: Final = "http://upstream.test"


@cache
def _imported(description: str, relay: bool) -> Mapping[str, str]:
    choice = Choice(relay=relay, upstream=_UPSTREAM)
    return make_files(harvest_operations(json.loads(description), "service.yaml", choice))


@contextlib.asynccontextmanager
async def served(description: JsonValue, upstream: str, more: str = "", *, relay: bool = False) -> AsyncIterator[int]:
    """The port of a proxy whose config was imported from a description; `more` are further routes."""
    imported = _imported(json.dumps(description), relay)
    files = {name: text.replace(_UPSTREAM, upstream) for name, text in imported.items()}
    with tempfile.TemporaryDirectory() as folder:
        text = files[CONFIG].replace("127.0.0.1:8080", "127.0.0.1:0") + more + "\nadmin: off\n"
        write_files(Path(folder), {**files, CONFIG: text}, force=False)
        serving = await start_serving(load(Path(folder) / CONFIG, {}))
        try:
            yield int(serving.url.rsplit(":", 1)[1])
        finally:
            await serving.stop(grace=0.5)


async def ask(port: int, method: str, target: str, body: bytes = b"", *headers: str) -> Seen:
    """Sends one request and gives the answer."""
    told = [f"{method} {target} HTTP/1.1", "Host: tools.test", *headers]
    if body:
        told.append(f"Content-Length: {len(body)}")
        if not any(header.lower().startswith("content-type") for header in headers):
            told.append("Content-Type: application/json")
    return await exchange(port, "\r\n".join([*told, "", ""]).encode() + body)
