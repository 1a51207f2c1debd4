"""Guidance in a text of the operator's own (`guidance: {template: FILE}`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.__main__ import main
from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.core.decide import decide
from proxy.extensions.guidance.core.prompt import (
    PLACEHOLDERS,
    REACT_HEADER,
    TYPE_RULES,
    ToolState,
    write_guidance,
    write_state,
)
from tests.serving.proxied import proxied
from tests.serving.wire import exchange

SCHEMA = "{type: object, properties: {n: {type: integer}}}"
ROUTE = f"  - {{path: /a, upstream: tools, tool: x, schema: {SCHEMA}}}"
TEMPLATE = "Hello.\n\n{{state}}\n\n{{ header }}\n\n# Tools\n{{tools}}\nBye.\n"


def write_config(folder: Path, template: str | None) -> Path:
    if template is not None:
        (folder / "t.txt").write_text(template)
    path = folder / "c.yaml"
    path.write_text(
        "version: 1\nupstreams: {tools: {url: 'http://127.0.0.1:9'}}\nguidance: {template: t.txt}\nroutes:\n" + ROUTE
    )
    return path


def test_the_verb_fills_in_the_template(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["guidance", "--config", str(write_config(tmp_path, TEMPLATE))]) == 0
    text = capsys.readouterr().out

    assert text.startswith(f"Hello.\n\n{REACT_HEADER}\n\n# Tools\n## x\nArguments: {{n?: integer}}\n")
    assert text.endswith("\nBye.\n")
    assert TYPE_RULES not in text


async def test_both_ports_fill_in_the_template(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(TEMPLATE)
    async with proxied(ROUTE, guidance=f"{{serve: /guidance, template: {tmp_path}/t.txt}}") as proxy:
        served = await exchange(proxy.port, b"GET /guidance HTTP/1.1\r\nHost: localhost\r\n\r\n")
        page = await exchange(proxy.admin, b"GET /-/guidance HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")

    assert served.body == page.body
    assert served.body.startswith(f"Hello.\n\n{REACT_HEADER}\n\n# Tools\n## x\n".encode())


def test_fills_in_values_once_and_puts_the_state_at_its_placeholder() -> None:
    states = [ToolState("{{tools}}", 1, 3, 0, 3)]
    told = write_state(states)

    assert f"{told}|{REACT_HEADER}|\n" == write_guidance({}, 5000, decide, states, "{{state}}|{{header}}|{{tools}}")


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (None, ["cannot read t.txt: No such file or directory  (paths start at the config file's folder)"]),
        ("{{header}}", ["the template has no {{tools}}  (add it: " + PLACEHOLDERS["tools"] + ")"]),
        ("{{header}} {{tols}} {{tools}}",
         ["the template holds {{tols}}, which nothing fills in  (did you mean 'tools'?)"]),
    ],
)  # fmt: skip
def test_a_template_that_cannot_be_filled_in_is_a_mistake(
    tmp_path: Path, template: str | None, told: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write_config(tmp_path, template), {})

    assert [f"3:22  guidance  {one}" for one in told] == [
        str(mistake).split(":", 1)[1] for mistake in caught.value.mistakes
    ]


def test_an_edited_template_is_noticed_by_a_reload(tmp_path: Path) -> None:
    loaded = load(write_config(tmp_path, TEMPLATE), {})

    assert tmp_path / "t.txt" in loaded.files
