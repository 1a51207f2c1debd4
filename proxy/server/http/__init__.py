"""One HTTP message: body, headers, access, responses, WebSocket. aiohttp's client is loaded by its first use."""

import re
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec
from typing import Any


def _delay_client() -> None:
    """Puts aiohttp's package in place without running its `__init__`, until somebody asks for a name that is no module.
    The server needs no such name, and the client takes 3 MB and a sixth of the start."""
    spec = find_spec("aiohttp") if "aiohttp" not in sys.modules else None
    if spec is None or not isinstance(loader := spec.loader, SourceFileLoader):
        return
    found = re.match(r'__version__ = "([^"]+)"', loader.get_source("aiohttp") or "")
    if found is None:
        return
    package = module_from_spec(spec)

    def load(name: str) -> Any:
        if find_spec(f"aiohttp.{name}") is not None:
            raise AttributeError(name)  # a module: the import system loads it
        loader.exec_module(package)  # it brings a `__getattr__` in place of this one
        return getattr(package, name)

    vars(package).update(__version__=found[1], __getattr__=load)
    sys.modules["aiohttp"] = package


_delay_client()
