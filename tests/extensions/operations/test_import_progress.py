"""An import of an OpenAPI description shows how far it is."""

from __future__ import annotations

import sys

import pytest

from proxy.cli import progress as bars
from proxy.core.model.values import JsonValue
from proxy.extensions.operations.cli.import_ import show_operations
from proxy.extensions.operations.importing.openapi import Choice, harvest_operations
from tests.cli.test_progress import Terminal


def test_an_import_shows_how_many_operations_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(bars, "_SHOWN_AFTER", 0.0)
    paths: JsonValue = {f"/orders/{number}": {"get": {"responses": {}}} for number in range(4)}
    with show_operations() as advance:
        harvest_operations({"openapi": "3.1.0", "paths": paths}, "orders.json", Choice(upstream="http://x"), advance)
    assert "\r[#######.......................]  25%  1 operations" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
