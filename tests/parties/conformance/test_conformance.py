"""The newest revision of MCP's conformance suite through the proxy, two ways; `make conformance` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parties.conformance.suite import REVISIONS, compare, run_servers
from tests.parties.environment import needs

pytestmark = [pytest.mark.large, pytest.mark.timeout(900)]  # the suite takes a minute, more on a busy machine


def test_passes_through_the_proxy_what_passes_directly(tmp_path: Path) -> None:
    needs("py2", "node", "conformance")
    assert [] == compare(run_servers(tmp_path, REVISIONS[-1:], ["url", "command"]))
