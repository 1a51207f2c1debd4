"""The overlay of a listed schema is linted like every other schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.config.mistakes import ConfigError


def test_lints_the_overlay_of_a_listed_schema(tmp_path: Path) -> None:
    overlay = {"requird": ["a"], "properties": {"a": {"maxlength": 4, "minLength": None}}}
    config = {
        "version": 1,
        "upstreams": {"m": {"url": "http://127.0.0.1:9"}},
        "routes": [{"path": "/m", "upstream": "m", "protocol": "mcp", "mcp": {"tools": {"t": {"overlay": overlay}}}}],
    }
    (tmp_path / "c.yaml").write_text(json.dumps(config, indent=1))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "c.yaml", {})
    assert [(17, "did you mean 'required'?"), (22, "did you mean 'maxLength'?")] == [
        (mistake.line, mistake.hint) for mistake in caught.value.mistakes
    ]
