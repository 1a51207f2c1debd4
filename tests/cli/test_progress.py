"""The progress bar shows on terminals, once it is worth it, and leaves nothing behind."""

from __future__ import annotations

import io

import pytest

from proxy.cli.progress import Progress, draw_bar


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
