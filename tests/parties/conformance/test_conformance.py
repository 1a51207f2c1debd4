"""A sample of the conformance suite of MCP through the proxy: every way, at the newest revision and an old one.

`make conformance` runs all of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parties.conformance.suite import SAMPLE, WAYS, compare, run_servers
from tests.parties.environment import needs

pytestmark = [pytest.mark.large, pytest.mark.timeout(900)]  # the sample takes half a minute, more on a busy machine


def test_passes_through_the_proxy_what_passes_directly(tmp_path: Path) -> None:
    needs("py2", "node", "conformance")
    found = run_servers(tmp_path, list(SAMPLE), list(WAYS), SAMPLE)
    assert [] == compare(found)
    assert all(len(checks) >= len(SAMPLE[revision]) for way in found.values() for revision, checks in way.items())
