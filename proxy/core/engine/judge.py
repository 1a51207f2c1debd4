"""jsonschema-rs, the engine beside ours. This file alone calls it.

It serves four ends: it holds each schema against its meta-schema when a check is compiled, it matches regular
expressions (Rust's linear matcher; a backtracking one with a hard limit where a pattern needs it), it judges formats
(764 of 764 cases of the suite), and it judges whole values for the few schemas generated code cannot express
(`graph.unwritable`). It is told never to fetch. It is loaded when it is first needed, as it takes 8 MB and many configs
never need it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from proxy.core.engine.obvious import is_obvious
from proxy.core.engine.patterns import translate
from proxy.core.jsontext import plain
from proxy.core.model import JsonValue, Pointer
from proxy.core.schema import MAPS, Draft, SchemaError, Schemas

if TYPE_CHECKING:
    from jsonschema_rs import Validator

# Steps a backtracking pattern may take before the value counts as refused; about 10 ms.
BACKTRACK_LIMIT: Final = 100_000

# What the engine calls a draft; with `Validator` behind it, its validator.
_NAMED: Final = {
    Draft.D4: "Draft4",
    Draft.D6: "Draft6",
    Draft.D7: "Draft7",
    Draft.D2019: "Draft201909",
    Draft.D2020: "Draft202012",
}

META_SCHEMA: Final = {
    Draft.D4: "http://json-schema.org/draft-04/schema#",
    Draft.D6: "http://json-schema.org/draft-06/schema#",
    Draft.D7: "http://json-schema.org/draft-07/schema#",
    Draft.D2019: "https://json-schema.org/draft/2019-09/schema",
    Draft.D2020: "https://json-schema.org/draft/2020-12/schema",
}

# References to groups (`\1`, `\k<name>`), named groups and flags: a pattern with them stands alone.
_NOT_JOINED: Final = re.compile(r"\\[1-9k]|\(\?(?:[a-zA-Z-]|P?<[^=!])")

# Text that no known format accepts: a format that takes it is one the engine does not know, and no assertion.
_NO_FORMAT_TAKES: Final = "\x00 {%[(\\"


class Refused(Exception):  # noqa: N818 - a verdict, not a mistake
    """A pattern ran into its limit: the value counts as refused, wherever the pattern stands (even under `not`)."""

    def __init__(self, pattern: str, text: str) -> None:
        super().__init__(pattern)
        self.pattern = pattern
        self.text = text


def _compiled(draft: Draft, schema: JsonValue, **options: Any) -> Validator:
    """A validator of the engine, told never to fetch. Raises what the engine raises."""
    import jsonschema_rs

    made: Validator = getattr(jsonschema_rs, f"{_NAMED[draft]}Validator")(schema, offline=True, **options)
    return made


@lru_cache(maxsize=len(Draft))
def _meta(draft: Draft) -> Validator:
    """Holds a schema against the meta-schema of a draft. Patterns: see `pattern_matcher`."""
    return _compiled(draft, {"$ref": META_SCHEMA[draft]}, validate_formats=False)


def check_schema(schema: JsonValue, draft: Draft, path: Pointer = ()) -> None:
    """Raises SchemaError, with the place, for a schema that its draft's meta-schema refuses."""
    if is_obvious(schema, draft):
        return
    try:
        for error in _meta(draft).iter_errors(plain(schema)):
            raise SchemaError(error.message, (*path, *error.instance_path))
    except SchemaError:
        raise
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the schema cannot be read: {error}", path) from error


def whole_judge(
    schema: JsonValue, schemas: Schemas, draft: Draft, *, formats: bool, linear: bool, base: str
) -> Validator:
    """A validator for `schema`, which may refer to the documents of `schemas`. Raises SchemaError."""
    import jsonschema_rs

    patterns = (
        jsonschema_rs.RegexOptions() if linear else jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT)
    )
    try:
        return _compiled(
            draft,
            prepared(schema, linear=linear),
            validate_formats=formats,
            base_uri=base,
            registry=jsonschema_rs.Registry(
                [(uri, prepared(schemas.documents[uri], linear=linear)) for uri in schemas.reached],
                draft=getattr(jsonschema_rs, _NAMED[draft]),
            ),
            pattern_options=patterns,
        )
    except jsonschema_rs.ValidationError as error:
        raise SchemaError(error.message, tuple(error.instance_path)) from error
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise SchemaError(str(error)) from error


def prepared(schema: JsonValue, *, linear: bool) -> JsonValue:
    """A copy of a schema as the engine takes it: plain numbers, patterns in its own spelling."""
    return _translated(plain(schema), linear)


def _translated(schema: JsonValue, linear: bool) -> JsonValue:
    if isinstance(schema, list):
        return [_translated(item, linear) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, JsonValue] = {}
    for keyword, item in schema.items():
        if keyword in ("enum", "const", "default", "examples"):
            made[keyword] = item
        elif keyword == "pattern" and isinstance(item, str):
            made[keyword] = translate(item, linear=linear)
        elif keyword in MAPS and isinstance(item, dict):
            named = keyword == "patternProperties"
            made[keyword] = {
                translate(name, linear=linear) if named else name: _translated(inner, linear)
                for name, inner in item.items()
            }
        else:
            made[keyword] = _translated(item, linear)
    return made


@lru_cache(maxsize=4096)  # shared by all schemas: a catalogue of tools repeats its few patterns
def pattern_matcher(pattern: str) -> tuple[Callable[[str], bool], bool]:
    """Gives a function that searches a text for an ECMA-262 pattern, and whether it takes linear time.

    Raises SchemaError for a pattern that is none.
    """
    import jsonschema_rs

    schema = {"pattern": translate(pattern)}
    try:
        return _compiled(Draft.D2020, schema, pattern_options=jsonschema_rs.RegexOptions()).is_valid, True
    except (ValueError, jsonschema_rs.ValidationError):
        pass
    schema = {"pattern": translate(pattern, linear=False)}
    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT)
    try:
        engine = _compiled(Draft.D2020, schema, pattern_options=options)
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise SchemaError(f"{pattern!r} is not a regular expression: {error}") from error

    def search(text: str) -> bool:
        for error in engine.iter_errors(text):
            if not isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Pattern):  # its limit, or no memory
                raise Refused(pattern, text)
            return False
        return True

    return search, False


def either(patterns: tuple[str, ...]) -> Callable[[str], bool] | None:
    """Gives a function that says whether any of several patterns matches, in one search; None where they cannot be
    joined: groups that are referred to would change their numbers, flags would reach further than they do."""
    if any(_NOT_JOINED.search(pattern) for pattern in patterns):
        return None
    try:
        search, linear = pattern_matcher("|".join(f"(?:{pattern})" for pattern in patterns))
    except SchemaError:  # larger than the matcher takes
        return None
    if linear:
        return search
    alone = [pattern_matcher(pattern)[0] for pattern in patterns]

    def bounded(text: str) -> bool:
        try:
            return search(text)
        except Refused:  # the limit is one pattern's, not that of all
            return any(one(text) for one in alone)

    return bounded


@lru_cache(maxsize=1024)
def format_matcher(name: str, draft: Draft) -> Callable[[str], bool] | None:
    """Gives a function that checks a text against a format, or None where the draft does not know the format."""
    check: Callable[[str], bool] = _compiled(draft, {"format": name}, validate_formats=True).is_valid
    return None if check(_NO_FORMAT_TAKES) else check
