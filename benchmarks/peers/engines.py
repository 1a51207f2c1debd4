"""The validation engines that are timed beside each other: how each is started, and its runner for a body.

A peer is a function from a schema to its `Runners`: for each kind of body a function from bytes to whatever the engine
makes of it. All start from the same bytes, so reading the JSON is part of every figure. AJV runs in a separate process
(`ajv`) and times itself the same way.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.schemas import CASES, bodies
from proxy.core.check.validation import compile_check
from proxy.core.contract.policy import RepairPolicy, ToolPolicy
from proxy.core.decide import decide, prepare
from proxy.core.json.jsontext import parse
from proxy.core.model.values import Conversation, Decision, Document, Reject, Rung, ToolCall
from proxy.core.repair.engine import repair
from proxy.core.rules.rules import select_rules

Runner = Callable[[bytes], object]
Runners = dict[str, Runner]
KINDS: Final = ("valid", "damaged", "4 errors")

# The packages that pip and npm install for the peers, and that this project does not need itself.
PYTHON: Final = ("fastjsonschema", "pydantic-core")
NODE: Final = ("ajv",)


def _parse(schema: Any) -> Runners:
    del schema
    return _same(parse)


def _ours(schema: Any) -> Runners:
    check = compile_check(schema)
    policy = RepairPolicy(select_rules("standard", {}))
    prepare(ToolPolicy("bench", check, "bench", repair=policy))

    def judge(body: bytes) -> object:
        return check.accepts(parse(body))

    def report(body: bytes) -> object:
        value = parse(body)
        return check.accepts(value) or check.list_broken(value)

    def mend(body: bytes) -> object:
        value = parse(body)
        return check.accepts(value) or repair(check, value, policy)

    return {"valid": judge, "damaged": mend, "4 errors": report}


def _decided(schema: Any) -> Runners:
    policy = ToolPolicy("tool", compile_check(schema), "bench", repair=RepairPolicy(select_rules("standard", {})))
    prepare(policy)
    conversation = Conversation("bench", Rung.HEADER)
    return _same(lambda body: decide(ToolCall("tool", Document(body, parse(body)), "call", conversation), policy))


def _same(run: Runner) -> Runners:
    return dict.fromkeys(KINDS, run)


def _orjson(schema: Any) -> Runners:
    del schema
    return _same(importlib.import_module("orjson").loads)


def _jsonschema_rs(schema: Any) -> Runners:
    loads = importlib.import_module("orjson").loads
    validator = importlib.import_module("jsonschema_rs").validator_for(schema)
    return _same(lambda body: list(validator.iter_errors(loads(body))))


def _jsonschema(schema: Any) -> Runners:
    loads = importlib.import_module("orjson").loads
    validator = importlib.import_module("jsonschema").Draft202012Validator(schema)
    return _same(lambda body: list(validator.iter_errors(loads(body))))


def _fastjsonschema(schema: Any) -> Runners:
    loads = importlib.import_module("orjson").loads
    module = importlib.import_module("fastjsonschema")
    validate = module.compile({"$schema": "http://json-schema.org/draft-07/schema#", **schema}, use_default=False)

    def run(body: bytes) -> object:
        try:
            return validate(loads(body))
        except module.JsonSchemaException as error:
            return [error]

    return _same(run)


def _pydantic(schema: Any) -> Runners:
    core = importlib.import_module("pydantic_core")
    validator = core.SchemaValidator(_core_schema(core.core_schema, schema))

    def run(body: bytes) -> object:
        try:
            return validator.validate_json(body)
        except core.ValidationError as error:
            return error.errors(include_url=False)

    return _same(run)


def _core_schema(make: Any, schema: Any) -> Any:
    """The pydantic-core form of the few keywords that the pairs use, in its fastest shape (no model classes)."""
    if "const" in schema:
        return make.literal_schema([schema["const"]])
    if "enum" in schema:
        return make.literal_schema(schema["enum"])
    if "oneOf" in schema:
        branches = {branch["properties"]["kind"]["const"]: _core_schema(make, branch) for branch in schema["oneOf"]}
        return make.tagged_union_schema(branches, "kind")
    kind = schema["type"]
    if kind == "object":
        required = schema.get("required", [])
        return make.typed_dict_schema(
            {
                key: make.typed_dict_field(_core_schema(make, item), required=key in required)
                for key, item in schema["properties"].items()
            }
        )
    if kind == "array":
        return make.list_schema(_core_schema(make, schema["items"]), max_length=schema.get("maxItems"))
    if kind == "integer":
        return make.int_schema(ge=schema.get("minimum"), le=schema.get("maximum"))
    if kind == "string":
        return make.str_schema(min_length=schema.get("minLength"), max_length=schema.get("maxLength"))
    return make.float_schema() if kind == "number" else make.bool_schema()


FLOOR: Final = "orjson.loads"
OURS: Final = "ours"
PYDANTIC: Final = "pydantic-core (coerces)"
AJV: Final = "AJV (coerces)"
PEERS: Final[dict[str, Callable[[Any], Runners]]] = {
    FLOOR: _orjson,
    "our strict parse alone": _parse,
    OURS: _ours,
    "ours, decided and written": _decided,
    PYDANTIC: _pydantic,
    "jsonschema-rs": _jsonschema_rs,
    "fastjsonschema (first error)": _fastjsonschema,
    "jsonschema": _jsonschema,
}


def told(result: object) -> int:
    """Returns how many errors a peer's answer tells of."""
    if isinstance(result, Decision):
        return len(result.failure.violations) if isinstance(result, Reject) else 0
    return len(result) if isinstance(result, list) else 0


_AJV: Final = """
const Ajv = require("ajv").default || require("ajv");
const cases = JSON.parse(require("fs").readFileSync(0, "utf8")), out = {};
for (const [name, [schema, bodies]] of Object.entries(cases)) {
  const started = process.hrtime.bigint();
  const validate = new Ajv({coerceTypes: true, allErrors: true, strict: false}).compile(schema);
  out[name] = {compile: Number(process.hrtime.bigint() - started) / 1e9};
  for (const [kind, text] of Object.entries(bodies)) {
    const body = Buffer.from(text);
    let best = Infinity;
    for (let round = 0; round < 40; round++) {
      const start = process.hrtime.bigint(); let n = 0, spent = 0n;
      do { for (let i = 0; i < 20; i++) validate(JSON.parse(body.toString())); n += 20; spent = process.hrtime.bigint() - start; }
      while (spent < 4000000n);
      best = Math.min(best, Number(spent) / 1e9 / n);
    }
    out[name][kind] = best;
    out[name]["told"] = validate(JSON.parse(body.toString())) ? 0 : validate.errors.length;
  }
}
console.log(JSON.stringify(out));
"""  # noqa: E501


def ajv(cache: Path) -> dict[str, dict[str, float]] | str:
    """Returns, under Node, for each case: seconds by body, seconds to compile, number of errors. Or why it is left
    out."""
    node = shutil.which("node")
    if node is None:
        return "node is not installed"
    cases = {
        name: (schema, {kind: body.decode() for kind, body in bodies(valid, wrong).items()})
        for name, (schema, valid, wrong) in CASES.items()
    }
    places = filter(None, (os.environ.get("NODE_PATH"), str(cache / "node" / "node_modules")))
    run = subprocess.run(
        [node, "-e", _AJV],
        input=json.dumps(cases), env={**os.environ, "NODE_PATH": os.pathsep.join(places)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if run.returncode:
        return "node finds no package ajv" if "Cannot find module" in run.stderr else run.stderr.strip()[-200:]
    found: dict[str, dict[str, float]] = json.loads(run.stdout)
    return found


def find(cache: Path) -> None:
    """Makes what `install` has fetched importable, after everything that is installed anyway."""
    sys.path.append(str(_home(cache)))


def install(cache: Path) -> Iterator[str]:
    """Fetches the peers into the cache folder, nothing into this interpreter. Gives what could not be fetched."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    commands = {"pip": [*pip, "--target", str(_home(cache)), *PYTHON]}
    npm = shutil.which("npm")
    if npm is None:
        yield "npm is not installed: AJV is left out"
    else:
        options = ["--silent", "--no-fund", "--no-audit", "--prefix", str(cache / "node")]
        commands["npm"] = [npm, "install", *options, *NODE]
    for name, command in commands.items():
        if subprocess.run(command, check=False).returncode:
            yield f"{name} could not fetch its peers"


def _home(cache: Path) -> Path:
    version = ".".join(map(str, sys.version_info[:2]))
    return cache / f"python-{version}"
