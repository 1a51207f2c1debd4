"""The published schema is closed and described, its defaults are the model's, and the page of keys has every key."""

from __future__ import annotations

import json
import re
from pathlib import Path

from proxy.config.files.published import load_published_schema, write_published_schema
from proxy.config.load import load
from proxy.config.model import Config, UpstreamConfig, find_default
from proxy.config.policies import read_policy
from proxy.config.sections.units import read_seconds, read_size, read_switch
from proxy.core.envelope import AUTO, FORMATS
from proxy.core.json.jsontext import walk
from proxy.core.model.values import Container, JsonValue
from proxy.core.rules.rules import LEVELS, RULES
from proxy.state import MAX_KEYS, list_keepers
from tests.docs.config_page import PAGE, list_all_keys, list_keys, make_page

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "schemas/config.schema.json").read_text())
DOCS = PAGE.read_text(encoding="utf-8")


def test_the_page_explains_every_key_as_the_schema_does() -> None:
    assert DOCS == make_page(DOCS), "make docs"


def test_inserts_a_new_key_after_the_one_before_it_and_drops_a_removed_one() -> None:
    (row,) = re.findall(r"^\| `reload\.interval: .*\n", DOCS, re.MULTILINE)
    (section,) = re.findall(r"^\| `reload` .*\n", DOCS, re.MULTILINE)
    gone = "| `reload.colour: red` | The colour. |\n"
    assert section + row in DOCS
    assert DOCS == make_page(DOCS.replace(row, gone))


def test_every_key_has_a_description() -> None:
    assert [] == [key for key, schema in list_all_keys().items() if not schema.get("description")]


def test_the_schema_is_closed() -> None:
    open_ones = [
        holder["properties"].keys()
        for holder in walk(SCHEMA)
        if isinstance(holder, dict)
        and isinstance(holder.get("properties"), dict)
        and "type" in holder
        and holder.get("additionalProperties") is not False
    ]
    assert [] == [sorted(keys) for keys in open_ones if set(keys) != {"openapi"}]


def test_the_package_reads_the_published_file() -> None:
    assert SCHEMA == load_published_schema()
    assert (ROOT / "schemas/config.schema.json").read_text() == write_published_schema(), "make docs"


def test_levels_rules_and_backends_are_those_of_the_code() -> None:
    repair = SCHEMA["$defs"]["repair"]["anyOf"][1]["properties"]
    assert (list(LEVELS), list(RULES), [each.backend for each in list_keepers()]) == (
        SCHEMA["$defs"]["level"]["enum"],
        list(repair["rules"]["properties"]),
        SCHEMA["properties"]["state"]["properties"]["backend"]["enum"],
    )


def test_the_envelopes_are_those_of_the_code() -> None:
    assert {AUTO, *FORMATS} == set(SCHEMA["properties"]["defaults"]["properties"]["envelope"]["enum"])


def default(key: str) -> JsonValue:
    return list_all_keys()[key]["default"]


def test_the_defaults_are_those_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("version: 1\nroutes: {/a: {upstream: none, tool: x, schema: {}}}")
    config = load(tmp_path / "c.yaml", {}).config
    assert isinstance(config, Config)
    assert config.admin is not None
    assert {
        "listen": str(config.listen), "admin.listen": str(config.admin.listen), "drain": config.drain,
        "drain.serve": config.drain, "drain.finish": config.finish,
        "state.backend": config.state.backend, "state.max_keys": config.state.max_keys,
        "telemetry.log.format": config.telemetry.log_format, "telemetry.log.level": config.telemetry.log_level,
        "routes[].methods": list(config.routes[0].methods),
    } == {
        "listen": default("listen"), "admin.listen": default("admin.listen"), "drain": read_seconds(default("drain")),
        "drain.serve": read_seconds(default("drain.serve")), "drain.finish": read_seconds(default("drain.finish")),
        "state.backend": default("state.backend"), "state.max_keys": default("state.max_keys"),
        "telemetry.log.format": default("telemetry.log.format"), "telemetry.log.level": default("telemetry.log.level"),
        "routes[].methods": default("routes[].methods"),
    }  # fmt: skip
    assert MAX_KEYS == config.state.max_keys


def test_the_defaults_of_an_upstream_are_those_of_the_model() -> None:
    made = UpstreamConfig("u", "http://h")
    assert [made.connect_timeout, made.response_timeout, made.idle_timeout, made.pool_idle] == [
        read_seconds(default(f"upstreams.NAME.{key}"))
        for key in ("timeouts.connect", "timeouts.response", "timeouts.idle", "pool.idle")
    ]
    assert made.pool_connections == default("upstreams.NAME.pool.connections")


def test_the_defaults_of_a_policy_are_those_of_the_model() -> None:
    """A policy that writes out every documented default is the policy that writes nothing."""
    written: dict[str, JsonValue] = {}
    for key, schema in list_keys(SCHEMA["properties"]["defaults"], ""):
        first, _, rest = key.partition(".")
        if "default" in schema and first not in ("headers", "repair", "auth", "cors", "jwt", "answer"):
            if rest:
                written.setdefault(first, {})[rest] = schema["default"]
            else:
                written[first] = schema["default"]
    written["repair"] = {"level": default("repair")}
    assert read_policy({}) == read_policy(written)
    assert {
        "mode",
        "attempts",
        "caps",
        "feedback",
        "limits",
        "formats",
        "envelope",
        "error_status",
        "unknown_keys",
    } <= written.keys()
    assert (default("limits.body"), read_size(default("limits.body"))) == ("1MiB", read_policy({}).max_body)


def test_the_defaults_of_a_container_are_those_of_the_model() -> None:
    at = "tools.NAME.container."
    assert [default(at + key) for key in ("source", "expand", "auto_expand")] == [
        find_default(Container, name) for name in ("source", "expand", "auto_expand")
    ]
    assert read_switch(default(at + "require_expansion")) == find_default(Container, "require_expansion")


def test_the_example_names_every_section() -> None:
    example = (ROOT / "config.example.yaml").read_text()
    for word in (
        "version:",
        "listen:",
        "admin:",
        "upstreams:",
        "defaults:",
        "tools:",
        "routes:",
        "dispatch:",
        "container:",
        "passthrough:",
        "upstream: none",
        "lenient",
    ):
        assert word in example
