"""Speed of the validation engine beside its peers, bytes to verdict, as ratios to `orjson.loads` of the same body.

    python -m benchmarks.engine

Five schema/body pairs, each as a valid body, a damaged one (numbers and booleans sent as text) and one with four
errors, and the time to compile the schema. What a peer does with a body differs, and the column says so: ours repairs
a damaged body (strict parse, check, repair, check) and reports every error; pydantic-core and AJV coerce; the others
only report. A further row holds our whole decision: from the call to the bytes that are sent, or to the worded refusal.
A peer that is not installed is named and left out; AJV needs Node and `NODE_PATH`. Every figure is the best of many
short rounds, taken in turn with those of the others, so that a busy machine slows all alike; ratios of one run compare.
"""

from __future__ import annotations

import copy
import importlib
import json
import shutil
import subprocess
import sys
import timeit
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import orjson  # type: ignore[import-not-found,unused-ignore]  # a peer: benchmarks only

from proxy.core.decide import decide
from proxy.core.jsontext import parse
from proxy.core.mending import mended
from proxy.core.model import Conversation, Document, Rung, ToolCall
from proxy.core.policy import RepairPolicy, ToolPolicy
from proxy.core.repair import repair
from proxy.core.rules import rules_for
from proxy.core.validation import compile_check

Body = bytes
Runner = Callable[[Body], object]

ROUNDS: Final = 60
SECONDS: Final = 0.005  # of one round; the best round counts


# --- the five pairs -------------------------------------------------------------------------------------------------
def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _tagged(kind: str, **properties: Any) -> dict[str, Any]:
    return _object(["kind", *properties], kind={"const": kind}, **properties)


TEXT: Final = {"type": "string"}
NUMBER: Final = {"type": "number"}
WHOLE: Final = {"type": "integer"}
SWITCH: Final = {"type": "boolean"}

TINY: Final = _object(
    ["city", "days"], city=TEXT, days={**WHOLE, "minimum": 1, "maximum": 14}, metric=SWITCH, lat=NUMBER
)
BOOKING: Final = _object(
    ["id", "guest", "room", "nights"],
    id=TEXT, nights={**WHOLE, "minimum": 1}, paid=SWITCH, price=NUMBER, currency={"enum": ["EUR", "USD", "GBP"]},
    guest=_object(["name", "email"], name={**TEXT, "minLength": 1}, email=TEXT, age=WHOLE, vip=SWITCH),
    room=_object(["number"], number=WHOLE, floor=WHOLE, beds={"type": "array", "items": TEXT}, smoking=SWITCH),
    notes=TEXT, tags={"type": "array", "items": TEXT, "maxItems": 20},
)  # fmt: skip
ROW: Final = _object(["id", "name"], id=WHOLE, name=TEXT, price=NUMBER, ok=SWITCH)
ROWS: Final = _object(["rows"], rows={"type": "array", "items": ROW})
UNION: Final = _object(
    ["steps"],
    steps={
        "type": "array",
        "items": {
            "oneOf": [
                _tagged("wait", seconds=NUMBER),
                _tagged("click", x=WHOLE, y=WHOLE),
                _tagged("type", text=TEXT, enter=SWITCH),
                _tagged("scroll", by=WHOLE),
            ]
        },
    },
)
LONG: Final = _object(
    ["text", "page", "done"], text={**TEXT, "maxLength": 100_000}, page=WHOLE, done=SWITCH, size=NUMBER
)

STEPS: Final = [
    {"kind": "wait", "seconds": 1.5},
    {"kind": "click", "x": 10, "y": 20},
    {"kind": "type", "text": "hello", "enter": True},
    {"kind": "scroll", "by": -3},
]
GUEST: Final = {"name": "Ada", "email": "ada@example.org", "age": 36, "vip": True}
ROOM: Final = {"number": 42, "floor": 4, "beds": ["queen", "single"], "smoking": False}

# name -> (schema, valid body, the paths at which the fourfold wrong body holds null)
CASES: Final[dict[str, tuple[dict[str, Any], Any, list[list[Any]]]]] = {
    "tiny": (
        TINY,
        {"city": "Berlin", "days": 3, "metric": True, "lat": 52.5},
        [["city"], ["days"], ["metric"], ["lat"]],
    ),
    "booking": (
        BOOKING,
        {
            "id": "b-17", "nights": 3, "paid": True, "price": 340.5, "currency": "EUR", "guest": GUEST, "room": ROOM,
            "notes": "late arrival, around eleven", "tags": ["web", "returning"],
        },
        [["nights"], ["guest", "name"], ["room", "number"], ["tags", 0]],
    ),
    "rows": (
        ROWS,
        {"rows": [{"id": n, "name": f"item {n}", "price": n + 0.5, "ok": n % 2 == 0} for n in range(200)]},
        [["rows", 10, "id"], ["rows", 60, "name"], ["rows", 110, "price"], ["rows", 199, "ok"]],
    ),
    "union": (
        UNION,
        {"steps": STEPS},
        [["steps", 0, "seconds"], ["steps", 1, "x"], ["steps", 2, "enter"], ["steps", 3, "by"]],
    ),
    "text": (
        LONG,
        {"text": 'She said "no", and left.\n' * 800, "page": 3, "done": False, "size": 2.5},
        [["text"], ["page"], ["done"], ["size"]],
    ),
}  # fmt: skip


def bodies(valid: Any, wrong: list[list[Any]]) -> dict[str, Body]:
    """The three bodies of a pair."""
    broken = copy.deepcopy(valid)
    for *steps, last in wrong:
        holder = broken
        for step in steps:
            holder = holder[step]
        holder[last] = None
    return {
        name: orjson.dumps(body)
        for name, body in (("valid", valid), ("damaged", _damaged(valid)), ("4 errors", broken))
    }


def _damaged(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _damaged(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_damaged(item) for item in value]
    return json.dumps(value) if isinstance(value, bool | int | float) else value


# --- who runs -------------------------------------------------------------------------------------------------------
def _ours(schema: Any) -> dict[str, Runner]:
    check = compile_check(schema)
    check.prepare()
    policy = RepairPolicy(rules_for("standard", {}))
    check.mender(policy.rules)

    def judge(body: Body) -> object:
        return check.accepts(parse(body))

    def report(body: Body) -> object:
        value = parse(body)
        return check.accepts(value) or check.broken(value)

    def mend(body: Body) -> object:
        value = parse(body)
        return check.accepts(value) or mended(check, value, policy) or repair(check, value, policy)

    return {"valid": judge, "damaged": mend, "4 errors": report}


def _ours_decided(schema: Any) -> dict[str, Runner]:
    check = compile_check(schema)
    check.prepare()
    policy = ToolPolicy("tool", check, "bench", repair=RepairPolicy(rules_for("standard", {})))
    conversation = Conversation("bench", Rung.HEADER)
    return _same(lambda body: decide(ToolCall("tool", Document(body, parse(body)), "call", conversation), policy))


def _same(run: Runner) -> dict[str, Runner]:
    return dict.fromkeys(("valid", "damaged", "4 errors"), run)


def _jsonschema_rs(schema: Any) -> dict[str, Runner]:
    validator = importlib.import_module("jsonschema_rs").validator_for(schema)
    return _same(lambda body: list(validator.iter_errors(orjson.loads(body))))


def _jsonschema(schema: Any) -> dict[str, Runner]:
    validator = importlib.import_module("jsonschema").Draft202012Validator(schema)
    return _same(lambda body: list(validator.iter_errors(orjson.loads(body))))


def _fastjsonschema(schema: Any) -> dict[str, Runner]:
    module = importlib.import_module("fastjsonschema")
    validate = module.compile({"$schema": "http://json-schema.org/draft-07/schema#", **schema}, use_default=False)

    def run(body: Body) -> object:
        try:
            return validate(orjson.loads(body))
        except module.JsonSchemaException as error:
            return error

    return _same(run)


def _pydantic(schema: Any) -> dict[str, Runner]:
    core = importlib.import_module("pydantic_core")
    validator = core.SchemaValidator(_core_schema(core.core_schema, schema))

    def run(body: Body) -> object:
        try:
            return validator.validate_json(body)
        except core.ValidationError as error:
            return error.errors(include_url=False)

    return _same(run)


def _core_schema(make: Any, schema: Any) -> Any:
    """The pydantic-core form of the few keywords that the pairs use."""
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


PEERS: Final[dict[str, Callable[[Any], dict[str, Runner]]]] = {
    "ours": _ours,
    "ours, decided and written": _ours_decided,
    "jsonschema-rs": _jsonschema_rs,
    "pydantic-core (coerces)": _pydantic,
    "fastjsonschema (first error)": _fastjsonschema,
    "jsonschema": _jsonschema,
}

AJV: Final = """
const Ajv = require("ajv").default || require("ajv");
const cases = JSON.parse(require("fs").readFileSync(0, "utf8")), out = {};
for (const [name, [schema, bodies]] of Object.entries(cases)) {
  const started = process.hrtime.bigint();
  const validate = new Ajv({coerceTypes: true, allErrors: true, strict: false}).compile(schema);
  out[name] = {compile: Number(process.hrtime.bigint() - started) / 1e9};
  for (const [kind, body] of Object.entries(bodies)) {
    let best = Infinity;
    for (let round = 0; round < 40; round++) {
      const start = process.hrtime.bigint(); let n = 0, spent = 0n;
      do { for (let i = 0; i < 20; i++) validate(JSON.parse(body)); n += 20; spent = process.hrtime.bigint() - start; }
      while (spent < 4000000n);
      best = Math.min(best, Number(spent) / 1e9 / n);
    }
    out[name][kind] = best;
  }
}
console.log(JSON.stringify(out));
"""


def _ajv() -> dict[str, dict[str, float]] | None:
    """Seconds by case and body under Node, or None where Node or the ajv package is not there."""
    node = shutil.which("node")
    if node is None:
        return None
    cases = {
        name: (schema, {kind: body.decode() for kind, body in bodies(valid, wrong).items()})
        for name, (schema, valid, wrong) in CASES.items()
    }
    run = subprocess.run([node, "-e", AJV], input=json.dumps(cases), capture_output=True, text=True, check=False)
    found: dict[str, dict[str, float]] | None = json.loads(run.stdout) if run.returncode == 0 else None
    return found


def seconds(runs: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The best time of one call of each, in rounds that go over all of them."""
    numbers = {name: max(1, int(SECONDS / max(timeit.timeit(run, number=3) / 3, 1e-8))) for name, run in runs.items()}
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            best[name] = min(best[name], timeit.timeit(run, number=numbers[name]) / numbers[name])
    return best


def main() -> int:
    """Measures everything and prints one table for each pair."""
    absent = []
    ajv = _ajv()
    if ajv is None:
        absent.append("AJV (Node and the package ajv)")
    for name, (schema, valid, wrong) in CASES.items():
        made = bodies(valid, wrong)
        started: dict[str, dict[str, Runner]] = {"orjson": _same(orjson.loads)}
        for peer, start in PEERS.items():
            try:
                started[peer] = start(schema)
            except ImportError:
                absent.append(peer)
        times: dict[str, dict[str, float]] = {peer: {} for peer in started}
        for kind, body in made.items():
            runs = {peer: partial(runners[kind], body) for peer, runners in started.items()}
            for peer, best in seconds(runs).items():
                times[peer][kind] = best
        floor = times.pop("orjson")
        print(f"\n{name}: {len(made['valid'])} bytes, orjson.loads {floor['valid'] * 1e6:.2f} us")
        print(f"  {'':30} {'valid':>8} {'damaged':>8} {'4 errors':>8} {'compile':>10}")
        for peer, measured in times.items():
            _row(peer, measured, floor, seconds({"": partial(PEERS[peer], schema)})[""])
        if ajv is not None:
            _row("AJV (coerces)", ajv[name], floor, ajv[name]["compile"])
    if absent:
        print("\nnot installed, left out: " + ", ".join(dict.fromkeys(absent)))
    return 0


def _row(peer: str, times: dict[str, float], floor: dict[str, float], compiled: float) -> None:
    ratios = " ".join(f"{times[kind] / floor[kind]:>7.1f}x" for kind in floor)
    print(f"  {peer:30} {ratios} {compiled * 1e3:>7.2f} ms")


if __name__ == "__main__":
    sys.exit(main())
