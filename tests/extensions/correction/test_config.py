"""The config of corrections: what each key means, its defaults, and mistakes that teach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.config.model import Config
from proxy.config.sections.units import read_seconds, read_size, read_switch
from proxy.core.display.graphemes import find_placeholders
from proxy.core.rules.rules import CORRECTIONS
from proxy.extensions.correction.core.settings import (
    NEEDED,
    PLACEHOLDERS,
    CorrectionBudget,
    CorrectionPolicy,
    CorrectionSettings,
    DebugStore,
    Scope,
    TrajectoryLimits,
    find_policy,
    make_messages,
)
from proxy.extensions.correction.core.words import Layer
from proxy.extensions.correction.correction_section import find_correction
from proxy.extensions.correction.questions import load_prompt
from tests.config.test_published_schema import SCHEMA, default

ROUTE = "routes: {/a: {upstream: none, tool: x, schema: {type: object}%s}}\n"
MODEL = 'upstreams: {model: {url: "http://m/v1", headers: {set: {authorization: "Bearer ${KEY}"}}}}\n'


def loaded(folder: Path, text: str, route: str = "", environ: dict[str, str] | None = None) -> Config:
    (folder / "c.yaml").write_text("version: 1\n" + text + ROUTE % route)
    return load(folder / "c.yaml", environ or {"KEY": "k"}).config


def mistakes(folder: Path, text: str, route: str = "") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text, route)
    return [str(mistake).split(":", 1)[1] for mistake in caught.value.mistakes]


def policy(config: Config) -> CorrectionPolicy:
    return find_policy(config.routes[0].tools["x"].policy)


def test_it_is_off_unless_switched_on(tmp_path: Path) -> None:
    config = loaded(tmp_path, "")
    assert (None, CorrectionPolicy(), False) == (find_correction(config), policy(config), policy(config).on)


def test_two_keys_and_a_switch_are_enough(tmp_path: Path) -> None:
    text = MODEL + "correction: {upstream: model, model: tiny}\n"
    config = loaded(tmp_path, text, ", correct: {validation_feedback: on}")
    assert CorrectionSettings("model", "tiny", headers=(("authorization", "Bearer k"),)) == find_correction(config)
    assert CorrectionPolicy(validation_feedback=True) == policy(config)
    assert ("correction: arguments go to upstream 'model' without encryption",) == config.notes


def test_every_key_is_read(tmp_path: Path) -> None:
    for layer in Layer:
        (tmp_path / layer).write_text(" ".join(f"{{{{{name}}}}}" for name in PLACEHOLDERS))
    text = (
        MODEL
        + """correction:
  upstream: model
  path: /chat
  model: ${MODEL:-small}
  temperature: 0.5
  max_tokens: 300
  body: {seed: 7, user: "${KEY}"}
  timeout: 3s
  deadline: 4s
  concurrency: 2
  max_corrections: 1
  max_answer: 1KiB
  budget: {per_call: 1, per_conversation: 2, per_hour: 3}
  query: [{header: X-Ask}, {meta: Wish}, {body: /said}]
  trajectory: {steps: 1, max_chars: 2, conversations: 3, ttl: 4s}
  prompts: {validation_feedback: validation_feedback, semantic_retry: semantic_retry}
  debug: {file: d.jsonl, max_size: 2KiB}
"""
    )
    correct = (
        ", correct: {validation_feedback: on, semantic_retry: on, max_attempts: 1, trajectory: on, "
        "independent_steps: off, scope: any}"
    )
    config = loaded(tmp_path, text, correct)
    prompt = (tmp_path / "semantic_retry").read_text()
    assert find_correction(config) == CorrectionSettings(
        upstream="model", model="small", path="/chat", headers=(("authorization", "Bearer k"),),
        body={"seed": 7, "user": "k"}, temperature=0.5, max_tokens=300, timeout=3, deadline=4, concurrency=2,
        max_corrections=1, max_answer=1024, budget=CorrectionBudget(1, 2, 3),
        trajectory=TrajectoryLimits(1, 2, 3, 4), query=(("header", "x-ask"), ("meta", "Wish"), ("body", "/said")),
        prompts={Layer.VALIDATION_FEEDBACK: prompt, Layer.SEMANTIC_RETRY: prompt},
        debug=DebugStore(str(tmp_path / "d.jsonl"), 2048),
    )  # fmt: skip
    assert CorrectionPolicy(True, True, 1, True, False, Scope.ANY) == policy(config)


def test_the_documented_defaults_are_those_of_the_code() -> None:
    made = CorrectionSettings("u", "m")
    told = {
        "path": made.path, "max_tokens": made.max_tokens, "body": dict(made.body),
        "concurrency": made.concurrency, "max_corrections": made.max_corrections,
        "budget.per_call": made.budget.per_call, "budget.per_conversation": made.budget.per_conversation,
        "budget.per_hour": made.budget.per_hour, "query": [dict([place]) for place in made.query],
        "trajectory.steps": made.trajectory.steps, "trajectory.max_chars": made.trajectory.max_chars,
        "trajectory.conversations": made.trajectory.conversations,
    }  # fmt: skip
    assert told == {key: default(f"correction.{key}") for key in told}
    assert (
        f"Default: {made.temperature}."
        in SCHEMA["properties"]["correction"]["properties"]["temperature"]["description"]
    )
    times = {"timeout": made.timeout, "deadline": made.deadline, "trajectory.ttl": made.trajectory.ttl}
    assert times == {key: read_seconds(default(f"correction.{key}")) for key in times}
    sizes = {"max_answer": made.max_answer, "debug.max_size": DebugStore("f").max_size}
    assert sizes == {key: read_size(default(f"correction.{key}")) for key in sizes}
    switches = ("validation_feedback", "semantic_retry", "trajectory", "independent_steps")
    written: dict[str, Any] = {key: read_switch(default(f"correct.{key}")) for key in switches}
    written |= {key: default(f"correct.{key}") for key in ("max_attempts",)}
    assert CorrectionPolicy() == CorrectionPolicy(**written)


ENDPOINT = MODEL + "correction: {upstream: model, model: m, prompts: {%s: p.txt}}\n"


@pytest.mark.parametrize(
    ("text", "route", "mistake"),
    [
        ("", ", correct: {semantic_retry: on}",
         "2:64  route '/a'  there is no section `correction`  "
         "(say whom to ask: `correction: {upstream: NAME, model: NAME}`)"),
        ("defaults: {correct: {validation_feedback: on}}\n", "",
         "2:12  defaults  there is no section `correction`  "
         "(say whom to ask: `correction: {upstream: NAME, model: NAME}`)"),
        (MODEL + "correction: {upstream: modle, model: m}\n", "",
         "3:24  correction  unknown upstream 'modle'  (did you mean 'model'?)"),
        (MODEL + "correction: {upstream: model}\n", "", "3:1  correction  'model' is missing"),
        (MODEL + "correction: {upstream: model, model: m, max_corrections: 3}\n", "",
         "3:58  correction  `max_corrections` expects 1 or 2; this is 3"),
    ],
)  # fmt: skip
def test_a_mistake_says_where_and_what_to_do(tmp_path: Path, text: str, route: str, mistake: str) -> None:
    assert mistake in mistakes(tmp_path, text, route)[0]


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        (None, ["cannot read p.txt: No such file or directory  (paths start at the config file's folder)"]),
        ("{{arguments}} {{eror}} {{schema}}",
         ["the prompt has no {{error}}  (add it: the failure's text for the model)",
          "the prompt holds {{eror}}, which nothing fills in  (did you mean 'error'?)"]),
    ],
)  # fmt: skip
def test_a_prompt_that_cannot_be_filled_in_is_a_mistake(tmp_path: Path, prompt: str | None, told: list[str]) -> None:
    if prompt is not None:
        (tmp_path / "p.txt").write_text(prompt)
    found = mistakes(tmp_path, ENDPOINT % "validation_feedback")
    assert told == [mistake.split("  ", 2)[2] for mistake in found]


@pytest.mark.parametrize(
    ("correct", "note"),
    [
        ("{validation_feedback: on, trajectory: on}", "correct.trajectory has no effect without semantic_retry"),
        ("{semantic_retry: on, independent_steps: off}",
         "correct.semantic_retry is never asked: independent_steps is off and no trajectory is kept"),
    ],
)  # fmt: skip
def test_switches_that_come_to_nothing_are_noted(tmp_path: Path, correct: str, note: str) -> None:
    config = loaded(tmp_path, MODEL + "correction: {upstream: model, model: m}\n", f", correct: {correct}")
    assert f"route '/a': tool 'x': {note}" in config.notes


@pytest.mark.parametrize("layer", Layer)
def test_the_bundled_prompts_hold_what_they_have_to(layer: Layer) -> None:
    held = find_placeholders(load_prompt(layer))
    assert NEEDED[layer] <= held <= PLACEHOLDERS.keys()
    assert ["system", "user"] == [
        said["role"] for said in make_messages(load_prompt(layer), dict.fromkeys(PLACEHOLDERS, "x"))
    ]


def test_fills_in_values_only_once() -> None:
    values = dict.fromkeys(PLACEHOLDERS, "") | {"error": "{{schema}}", "schema": "secret"}
    assert [{"role": "user", "content": "{{schema}}!"}] == make_messages("{{ error }}!", values)


def test_corrections_are_named_by_their_layer() -> None:
    assert {layer.value for layer in Layer} == CORRECTIONS


def test_a_dump_masks_what_the_endpoint_is_sent_under_the_name_of_a_secret_at_any_depth(tmp_path: Path) -> None:
    body = "{api_key: sk-1, extra: {auth: {user: u, code: [1234]}, region: eu}, on: true, ref: '${KEY}'}"
    text = MODEL + f"correction: {{upstream: model, model: m, body: {body}}}\n"
    written = loaded(tmp_path, text).written["correction"]["body"]
    assert {
        "api_key": "***",
        "extra": {"auth": {"user": "***", "code": ["***"]}, "region": "eu"},
        "on": True,
        "ref": "${KEY}",
    } == written


def test_property_names_of_schemas_are_no_secrets_of_the_config(tmp_path: Path) -> None:
    schema = "{type: object, properties: {password: {type: string}, token: {const: x}}}"
    (tmp_path / "c.yaml").write_text("version: 1\n" + ROUTE.replace("schema: {type: object}%s", f"schema: {schema}"))
    written = load(tmp_path / "c.yaml", {}).config.written
    assert {"password": {"type": "string"}, "token": {"const": "x"}} == written["routes"]["/a"]["schema"]["properties"]
