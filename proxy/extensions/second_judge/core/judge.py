"""The second opinion on one value: picks a library for a schema, asks it, and reports its verdict.

Other rooms call `judge_value`. `run_job` does the same with bytes, for a child process (`proxy/offload`). Only that
process loads this file: the proxy knows `question.py`. A hostile schema or value can take any time here, so no code on
the way of a call ever asks within its own process.

fastjsonschema judges schemas whose keywords it reads as we do (`CompiledJudge`). These are schemas of drafts 4 to 7,
and those of 2019-09 and 2020-12 in which every keyword means what it means in draft 7. jsonschema judges all others
(`reference.py`). fastjsonschema writes Python code from the schema. So it gets a copy with only keywords of the table
below, and with only plain characters in every text that could be in its code. Patterns and formats become formats of
ours. fastjsonschema would judge other keywords (decimal limits, `uniqueItems`, `patternProperties`, `enum` of anything
but texts ...) by floats, by `re` or by Python's own equality.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Final

from proxy.core.check.metaschema import make_exact
from proxy.core.json.jsontext import dumps, format_pointer, make_decimal, parse
from proxy.core.model.values import JsonProblem, JsonValue, Pointer
from proxy.core.schema.drafts import KNOWN_BY, LISTS, MAPS, META_SCHEMA, SINGLE, Draft, find_draft, find_published_draft
from proxy.core.schema.formats import KEYWORD, Formats
from proxy.core.schema.matching import make_matcher, start_search_budget
from proxy.extensions.second_judge.core.question import Opinion, SecondVerdict
from proxy.extensions.second_judge.core.reference import CannotTellError, ReferenceJudge

# The number of judges that one process keeps: those for the schemas used last.
_KEPT: Final = 128


def judge_value(question: bytes, value: JsonValue) -> Opinion:
    """The second judge's verdict on a value; `question` is what `make_question` wrote. It may take any time, so it is
    for a child process or a command line."""
    try:
        judge, draft = _judge_of(question)
        with start_search_budget():
            place = judge.find_broken(exact := make_exact(value, draft))
            if place is not None and isinstance(judge, CompiledJudge):
                place = _find_place(question, exact)
    except CannotTellError as error:
        return Opinion(SecondVerdict.CANNOT_TELL, reason=str(error))
    except Exception as error:  # noqa: BLE001 - the failure of a library, or one of our bounds, gives no verdict
        return Opinion(SecondVerdict.CANNOT_TELL, reason=type(error).__name__)
    if place is None:
        return Opinion(SecondVerdict.VALID, judge.name)
    return Opinion(SecondVerdict.INVALID, judge.name, format_pointer(place))


@lru_cache(maxsize=_KEPT)
def _judge_of(text: bytes) -> tuple[CompiledJudge | ReferenceJudge, Draft]:
    question, draft = _read_question(text)
    if not question["documents"]:
        try:
            return CompiledJudge(question["schema"], draft, formats=Formats.from_json(question["formats"])), draft
        except CannotTellError:
            pass
    return _reference_of(text), draft


@lru_cache(maxsize=_KEPT)
def _reference_of(text: bytes) -> ReferenceJudge:
    question, draft = _read_question(text)
    formats = Formats.from_json(question["formats"])
    return ReferenceJudge(
        question["schema"], draft, documents=question["documents"], base=question["base"], formats=formats
    )


def _read_question(text: bytes) -> tuple[dict[str, JsonValue], Draft]:
    question = parse(text)
    if isinstance(question, JsonProblem):
        raise CannotTellError(question.reason)
    schema: JsonValue = question["schema"]
    if isinstance(schema, dict) and "$schema" in schema and find_published_draft(schema["$schema"]) is None:
        raise CannotTellError("$schema names a custom meta-schema")
    return question, find_draft(schema, documents=question["documents"])


def _find_place(text: bytes, exact: JsonValue) -> Pointer:
    """The place of a refusal by fastjsonschema, which tells none, as jsonschema knows it; () where it does not."""
    try:
        return _reference_of(text).find_broken(exact) or ()
    except Exception:  # noqa: BLE001 - the refusal stands without a place
        return ()


def run_job(text: bytes, question: bytes) -> bytes:
    """Answers a question about the value in a JSON text with an opinion as JSON."""
    value = parse(text)
    if isinstance(value, JsonProblem):
        opinion = Opinion(SecondVerdict.CANNOT_TELL, reason="the value is not JSON text")
    else:
        opinion = judge_value(question, value)
    return dumps(asdict(opinion))


# --- fastjsonschema ---------------------------------------------------------------------------------------------------
# Texts that are safe in generated code.
_PLAIN: Final = re.compile(r"[\w .,:;/@+*()=-]*", re.ASCII)
_LOCAL: Final = re.compile(r"#(?:/[\w.-]+)*", re.ASCII)
_NEW_DEFINITIONS: Final = "#/$defs/"


# Keywords that assert nothing here, and are left out.
_SILENT: Final = frozenset([
    "$schema", "$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
    "contentEncoding", "contentMediaType", "contentSchema",
])  # fmt: skip
# Keywords that assert nothing before the draft that brought them, and mean nothing that draft 7 knows.
_NEWER: Final = {keyword for keyword, (first, _) in KNOWN_BY.items() if first > Draft.D7} - _SILENT | {
    "$defs",
    "$vocabulary",
}
_IDLE: Final = _SILENT | _NEWER
# Keywords of draft 7 that a later draft reads otherwise.
_OLDER: Final = frozenset(["additionalItems", "dependencies"])
_COUNTS: Final = frozenset(["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"])
_LIMITS: Final = frozenset(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
_SINCE: Final = {"const": Draft.D6, "contains": Draft.D6, "propertyNames": Draft.D6} | dict.fromkeys(
    ("if", "then", "else"), Draft.D7
)


class CompiledJudge:
    """fastjsonschema's code for one schema. Raises CannotTellError for a schema that it does not read as we do."""

    name: Final = "fastjsonschema"

    def __init__(self, schema: JsonValue, draft: Draft, *, formats: Formats) -> None:
        import fastjsonschema

        rewriting = _Rewriting(draft, formats=formats)
        rewritten = rewriting.schema(schema)
        if not isinstance(rewritten, dict):
            rewritten = {} if rewritten else {"not": {}}
        try:
            self._validate: Callable[[Any], Any] = fastjsonschema.compile(
                {**rewritten, "$schema": META_SCHEMA[min(draft, Draft.D7)]},
                formats=rewriting.formats,
                use_default=False,
                detailed_exceptions=False,
            )
        except Exception as error:  # its writer may raise any exception
            raise CannotTellError(f"fastjsonschema does not compile it: {type(error).__name__}") from error
        self._refusal = fastjsonschema.JsonSchemaValueException

    def find_broken(self, value: JsonValue) -> Pointer | None:
        """Returns () if a value of exact numbers (`make_exact`) is refused, otherwise None."""
        try:
            self._validate(value)
        except self._refusal:
            return ()
        return None


class _Rewriting:
    """Makes the copy of a schema that fastjsonschema gets; `formats` are the functions of the formats in it."""

    def __init__(self, draft: Draft, *, formats: Formats) -> None:
        self._draft = draft
        self._asserted = formats
        self.formats: dict[str, Callable[[Any], bool]] = {}

    def schema(self, schema: JsonValue) -> JsonValue:
        """A schema, rewritten. Raises CannotTellError."""
        if isinstance(schema, bool):
            if self._draft is Draft.D4:
                raise CannotTellError("a boolean schema in draft 4")
            return schema
        if self._draft > Draft.D7:
            return self._newer(schema)
        if "$ref" in schema:
            kept = {"definitions": schema["definitions"]} if "definitions" in schema else {}
            return {"$ref": _refer(schema["$ref"]), **self._keywords(kept)}
        return self._keywords(schema)

    def _newer(self, schema: dict[str, JsonValue]) -> JsonValue:
        """A schema of a draft after 7 in the words of draft 7, where keywords beside `$ref` have no effect."""
        if "$defs" in schema and "definitions" in schema:
            raise CannotTellError("definitions under two keywords")
        words = {"definitions" if keyword == "$defs" else keyword: value for keyword, value in schema.items()}
        reference = words.pop("$ref", None)
        if isinstance(reference, str) and reference.startswith(_NEW_DEFINITIONS):
            reference = "#/definitions/" + reference.removeprefix(_NEW_DEFINITIONS)
        if any(keyword in _NEWER or keyword in _OLDER for keyword in words) or isinstance(words.get("items"), list):
            raise CannotTellError("a keyword with another meaning in draft 7")
        made = self._keywords(words)
        if reference is not None:
            made["allOf"] = [*made.get("allOf", []), {"$ref": _refer(reference)}]
        return made

    def _keywords(self, schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
        made: dict[str, JsonValue] = {}
        texts: list[JsonValue] = []
        for keyword, value in schema.items():
            if keyword.startswith("x-"):
                continue
            if keyword in ("pattern", "format"):
                texts.extend(self._format(keyword, value, schema.get(KEYWORD)))
            elif keyword not in _IDLE and self._draft >= _SINCE.get(keyword, Draft.D4):
                made[keyword] = self._keyword(keyword, value)
        if texts:
            made["allOf"] = [*made.get("allOf", []), *texts]
        return made

    def _keyword(self, keyword: str, value: JsonValue) -> JsonValue:
        if keyword in LISTS and isinstance(value, list):
            return [self.schema(item) for item in value]
        if keyword in SINGLE and isinstance(value, dict | bool):
            is_switch = isinstance(value, bool) and keyword in ("additionalItems", "additionalProperties")
            return value if is_switch else self.schema(value)
        if keyword in MAPS and keyword != "patternProperties" and isinstance(value, dict):
            return {  # under `dependencies` are names too
                _plain(key): [_plain(name) for name in item] if isinstance(item, list) else self.schema(item)
                for key, item in value.items()
            }
        if keyword in _COUNTS or keyword in _LIMITS:
            return _whole(keyword, value)
        if keyword == "type" or (keyword == "const" and value is None):
            return value
        if keyword == "required" or (keyword == "enum" and isinstance(value, list) and value):
            return [item if item is None else _plain(item) for item in value]
        if keyword == "const":
            return _plain(value)
        shown = keyword if _PLAIN.fullmatch(keyword) else "a keyword of another kind"
        raise CannotTellError(f"fastjsonschema is not asked about {shown}")

    def _format(self, keyword: str, value: JsonValue, mode: JsonValue) -> list[JsonValue]:
        if keyword == "pattern":
            check: Callable[[str], bool] | None = make_matcher(value).search
        else:
            name = str(value)
            check = self._asserted.check(name, self._draft, self._asserted.mode(name, mode))
        if check is None:
            return []
        ours = f"ours-{len(self.formats)}"
        self.formats[ours] = check
        return [{"format": ours}]


def _refer(reference: JsonValue) -> str:
    """A reference within the schema."""
    if not isinstance(reference, str) or _LOCAL.fullmatch(reference) is None:
        raise CannotTellError("$ref out of the schema")
    return reference


def _plain(text: JsonValue) -> str:
    if not isinstance(text, str) or _PLAIN.fullmatch(text) is None:
        raise CannotTellError("a text that is not plain")
    return text


def _whole(keyword: str, value: JsonValue) -> JsonValue:
    if isinstance(value, bool):
        if keyword.startswith("exclusive"):
            return value
        raise CannotTellError(f"{keyword} is a boolean")
    number = make_decimal(value)
    if number != int(number) or abs(number) >= 2**53:
        raise CannotTellError("a limit that is not a small whole number")
    return int(number)
