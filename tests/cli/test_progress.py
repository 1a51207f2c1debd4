"""The progress bar shows on terminals, once it is worth it, and leaves nothing behind."""

from __future__ import annotations

import io
import sys

import pytest

from proxy.cli import progress as bars
from proxy.cli.import_ import show_operations
from proxy.cli.progress import Progress, draw_bar
from proxy.core.model.values import JsonValue
from proxy.extensions.operations.importing.openapi import Choice, harvest_operations


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_says_how_far_it_is() -> None:
    assert "[###############...............]  50%  1,234 lines" == draw_bar(1234, 50, 100)
    assert "[##############################] 100%  9 lines" == draw_bar(9, 120, 100)
    assert "7 lines" == draw_bar(7, 0, None)
    assert "[##############################] 100%  1,500 operations" == draw_bar(1500, 1500, 1500, "operations")


@pytest.mark.parametrize(("stream", "drawn"), [(io.StringIO(), False), (Terminal(), True)])
def test_only_a_terminal_gets_a_bar_and_only_after_a_moment(stream: io.StringIO, drawn: bool) -> None:
    now = [0.0]
    progress = Progress(100, stream, clock=lambda: now[0])
    progress.at(1, 10)
    assert "" == stream.getvalue()
    now[0] = 1.5
    progress.at(2, 20)
    progress.erase()
    assert drawn == ("2 lines" in stream.getvalue())
    assert drawn == stream.getvalue().endswith("\r\x1b[K")


def test_an_import_shows_how_many_operations_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(bars, "_SHOWN_AFTER", 0.0)
    paths: JsonValue = {f"/orders/{number}": {"get": {"responses": {}}} for number in range(4)}
    with show_operations() as advance:
        harvest_operations({"openapi": "3.1.0", "paths": paths}, "orders.json", Choice(upstream="http://x"), advance)
    assert "\r[#######.......................]  25%  1 operations" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
