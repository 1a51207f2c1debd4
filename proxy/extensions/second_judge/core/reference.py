"""jsonschema as a judge of a value, by a schema.

jsonschema and its registry of references (`referencing`) are loaded on first use. They get exact numbers (`int` and
`Decimal`), our patterns and our formats, and never fetch anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from proxy.core.check.metaschema import load_validator_class, make_exact
from proxy.core.json.jsontext import walk
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.drafts import Draft, find_published_draft
from proxy.core.schema.formats import KEYWORD, Formats
from proxy.core.schema.matching import make_matcher

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

# Groups of keywords that, in one schema, jsonschema judges by `re`, leaves out or reads differently, by draft.
_READ_OTHERWISE: Final = (
    ("unevaluatedProperties", "patternProperties", Draft.D2019, Draft.D2020),
    ("unevaluatedProperties", "additionalProperties", Draft.D2019, Draft.D2019),
    ("unevaluatedItems", "contains", Draft.D2019, Draft.D2019),
    ("dependencies", "dependencies", Draft.D2019, Draft.D2020),
)  # fmt: skip
# Keywords whose values are data: a `$ref` in them is no reference.
_DATA: Final = frozenset({"const", "default", "enum", "examples"})
# The most digits of a number that `multipleOf` is computed for.
_MAX_DIGITS: Final = 5_000


class CannotTellError(Exception):
    """The judge does not read this keyword, pattern or number in the meaning of the schema."""


class ReferenceJudge:
    """jsonschema's validator of one schema. `documents` are those it may refer to, by URI; `base` is its own URI."""

    name: Final = "jsonschema"

    def __init__(
        self, schema: JsonValue, draft: Draft, *, documents: Mapping[str, JsonValue], base: str, formats: Formats
    ) -> None:
        from jsonschema.validators import extend
        from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
        from referencing import Resource
        from referencing.jsonschema import specification_with

        # The absolute URI that a document gives itself counts, without a fragment.
        named = schema.get("id" if draft is Draft.D4 else "$id") if isinstance(schema, dict) else None
        base = _joinable(named.partition("#")[0] if isinstance(named, str) and "://" in named else base)
        everything = {**{_joinable(uri): document for uri, document in documents.items()}, base: schema}
        everything = {uri: _join_references(_drop_dialect(document, draft)) for uri, document in everything.items()}
        _refuse_what_differs(draft, everything.values())
        known = load_validator_class(draft)
        default = specification_with(known.META_SCHEMA["$schema"])
        resources = [
            (uri, Resource.from_contents(make_exact(found, draft), default_specification=default))
            for uri, found in everything.items()
        ]
        keywords = {**_KEYWORDS, "format": _format_keyword(formats, draft)}
        # `make_exact` has made an int of what the draft counts as an integer.
        types = known.TYPE_CHECKER.redefine("integer", lambda _checker, value: type(value) is int)
        extended: Any = extend(known, validators=keywords, type_checker=types)  # type: ignore[no-untyped-call]
        registry = REGISTRY.with_resources(resources).crawl()
        self._validator: Validator = extended({"$ref": base}, registry=registry)

    def find_broken(self, value: JsonValue) -> Pointer | None:
        """The place of the first keyword that a value of exact numbers (`make_exact`) breaks, or None. Raises
        CannotTellError."""
        error = next(iter(self._validator.iter_errors(value)), None)
        return None if error is None else tuple(error.absolute_schema_path)


def _joinable(uri: str) -> str:
    """A URI of our own scheme in a form to which `referencing` can join references."""
    scheme, colon, rest = uri.partition(":///")
    return f"https://{scheme}.invalid/{rest}" if colon and scheme not in ("http", "https") else uri


def _join_references(value: JsonValue) -> JsonValue:
    """A copy of a document whose references to URIs of our own scheme are in that form too."""
    if isinstance(value, list):
        return [_join_references(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {keyword: item if keyword in _DATA else _join_references(item) for keyword, item in value.items()}
    return {**made, "$ref": _joinable(made["$ref"])} if isinstance(made.get("$ref"), str) else made


def _drop_dialect(document: JsonValue, draft: Draft) -> JsonValue:
    """Returns a document without its `$schema`, which would make jsonschema switch to a class that uses `re`."""
    if not isinstance(document, dict) or "$schema" not in document:
        return document
    if find_published_draft(document["$schema"]) is not draft:
        raise CannotTellError("documents of several drafts")
    return {keyword: value for keyword, value in document.items() if keyword != "$schema"}


def _refuse_what_differs(draft: Draft, documents: Iterable[JsonValue]) -> None:
    """Raises CannotTellError for keywords that jsonschema judges by `re`, or reads differently from the standard."""
    objects = [value for value in walk(list(documents)) if isinstance(value, dict)]
    keywords = {key for value in objects for key in value}
    if any(isinstance(value.get("$schema"), str) for value in objects):
        raise CannotTellError("$schema within a schema")
    for keyword, beside, since, until in _READ_OTHERWISE:
        if keyword in keywords and beside in keywords and since <= draft <= until:
            raise CannotTellError(keyword if keyword == beside else f"{keyword} beside {beside}")


# --- keywords that jsonschema gives to `re` or to floats, and formats as they are to be asserted ----------------------
def _format_keyword(formats: Formats, draft: Draft) -> Callable[[Any, Any, Any, Any], Iterator[Any]]:
    def assert_format(validator: Any, name: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if not isinstance(name, str) or not validator.is_type(instance, "string"):
            return
        check = formats.check(name, draft, formats.mode(name, schema.get(KEYWORD)))
        if check is not None and not check(instance):
            yield _error("format")

    return assert_format


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "string") and not make_matcher(pattern).search(instance):
        yield _error("pattern")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, inner in patterns.items():
        search = make_matcher(pattern).search
        for key, item in instance.items():
            if search(key):
                yield from validator.descend(item, inner, path=key, schema_path=pattern)


def _additional_properties(validator: Any, inner: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    searches = [make_matcher(pattern).search for pattern in schema.get("patternProperties", {})]
    for key, item in instance.items():
        if key in schema.get("properties", {}) or any(search(key) for search in searches):
            continue
        if inner is False:
            yield _error("additionalProperties")
            return
        yield from validator.descend(item, inner, path=key)


def _multiple_of(validator: Any, step: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    if not validator.is_type(instance, "number"):
        return
    if max(_digits(step), _digits(instance)) > _MAX_DIGITS:
        raise CannotTellError("multipleOf with a number of too many digits")
    if (Fraction(instance) / Fraction(step)).denominator != 1:
        yield _error("multipleOf")


def _digits(number: Any) -> int:
    if isinstance(number, int):
        return number.bit_length() // 3
    exponent = number.as_tuple().exponent
    return len(number.as_tuple().digits) + abs(int(exponent))


def _error(keyword: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(keyword)


_KEYWORDS: Final = {
    "pattern": _pattern, "patternProperties": _pattern_properties, "additionalProperties": _additional_properties,
    "multipleOf": _multiple_of,
}  # fmt: skip
