"""`serve --model URL`: makes the config of one model server."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from proxy.extensions.chat.core.model_request import API_PATHS
from proxy.file_writing import replace_file
from proxy.plugin import split_url

_ASKS_AGAIN: Final = (
    "serve --model: a model whose calls cannot be repaired gets one retry; a config with `model: {retries: 0}` does not"
)

# As long as the route's connections may take.
_CONNECTS_WITHIN: Final = 10.0


def write_model_config(url: str, text_calls: str = "off", connections: int | None = None) -> str:
    """A config (YAML) with one route to the model server whose base URL is `url`, below the path that the URL has.

    A URL that no upstream can have (without a scheme) gives a config that reports it when it is read. `connections` is
    the most streams at a time, None for the default.
    """
    pool = "" if connections is None else f", pool: {{connections: {connections}}}"
    parts = split_url(url)
    origin, path = f"{parts.scheme}://{parts.netloc}" if parts.scheme else url, parts.path.rstrip("/") or "/"
    origin += f"?{parts.query}" if parts.query else ""
    return f"""\
version: 1
admin: off
upstreams:
  model: {{url: {json.dumps(origin.replace("$", "$$"))}, timeouts: {{connect: 10s}}{pool}}}
routes:
  - {{path: {json.dumps(path)}, upstream: model, timeout: 10m, model: {{retries: 1, text_calls: {text_calls}}}}}
"""


def find_url_mistake(url: str) -> str:
    """The mistake in the base URL of a model server; '' where there is none, or the config reports it."""
    if "://" not in url:
        return f"{url!r} is no URL: did you mean http://{url}?"
    base = url.rstrip("/")
    for end, _ in API_PATHS:
        if base.endswith(end):
            return f"{url} is where requests go: say the base, {base.removesuffix(end)}"
    return ""


async def find_trouble(url: str) -> list[str]:
    """A line that explains why nothing answers at the URL of a model server; empty if something takes connections."""
    parts = split_url(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(_CONNECTS_WITHIN):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except OSError as error:  # TimeoutError is one
        reason = "no connection in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return [f"{parts.hostname}:{port}: {reason}  (is the model server running, and is this its address?)"]
    writer.close()
    return []


def make_config_file(args: argparse.Namespace, kept: ExitStack) -> Path | None:
    """Writes the config for `args.model` to a file that exists until `kept` closes; None, with the reason printed, if
    that is not a base URL."""
    if mistake := find_url_mistake(args.model):
        print(f"serve --model: {mistake}", file=sys.stderr)
        return None
    path = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="toolcall-proxy-"))) / "model.yaml"
    replace_file(path, write_model_config(args.model, args.text_calls, args.connections).encode())
    print(_ASKS_AGAIN, file=sys.stderr)
    return path
