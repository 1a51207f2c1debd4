"""Writes schemas/config.schema.json from the parts that the proxy reads: `python -m tests.docs.config_schema`."""

from __future__ import annotations

from pathlib import Path

from proxy.config.files.published import write_published_schema

if __name__ == "__main__":
    (Path(__file__).parents[2] / "schemas" / "config.schema.json").write_text(
        write_published_schema(), encoding="utf-8"
    )
