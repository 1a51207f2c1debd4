"""The dialects in which upstreams report wrong arguments, as one table (contract section 7).

Adding a dialect costs one entry here and one file of samples; the test suite picks both up. The order is the order
of trust: what is most particular is asked first, sentences last. The samples under `tests/data/upstream-complaints/`
were made by running the frameworks, where their README does not say otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.core.complaints import phrasings
from proxy.core.complaints.readers import Reader, items, maps


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way of complaining. `samples` are the files that show it.

    `sure`: a claim counts although its place is not known here, because nothing else is ever written so. A reader
    that is not sure is believed where a claim names a sent or declared argument, or words that the tables know.
    `strict`: it is believed only where both are given.
    """

    name: str
    read: Reader
    samples: tuple[str, ...]
    sure: bool = True
    strict: bool = False


# Places of a request that are not its arguments.
_OUTSIDE: Final = ("header", "headers", "cookie", "cookies")

_LISTS: Final = (
    Dialect(
        "fastapi",
        items(needs=("loc", "msg"), place=("loc",), words=("msg",), kind=("type",), outside=_OUTSIDE),
        ("fastapi.json",),
    ),
    Dialect(
        "ajv",
        items(
            needs=("keyword", "message"),
            place=("instancePath", "dataPath"),
            words=("message",),
            kind=("keyword",),
            extra=("params.missingProperty", "params.additionalProperty", "params.unevaluatedProperty"),
        ),
        ("ajv.json",),
    ),
    Dialect(
        "joi",
        items(needs=("path", "type", "message", "context"), place=("path",), words=("message",), kind=("type",)),
        ("joi.json",),
    ),
    Dialect(
        "zod",
        items(needs=("code", "path", "message"), place=("path",), words=("message",), kind=("code",), extra=("keys",)),
        ("zod.json",),
    ),
    Dialect(
        "valibot",
        items(needs=("kind", "type", "message"), place=("path",), words=("message",), kind=("type",)),
        ("documented.json",),
    ),
    Dialect(
        "express-validator",
        items(needs=("msg", "location"), place=("path", "param"), words=("msg",), outside=_OUTSIDE),
        ("express-validator.json", "documented.json"),
    ),
    Dialect(
        "express-openapi-validator",
        items(needs=("path", "errorCode"), place=("path",), words=("message",)),
        ("express-openapi-validator.json",),
    ),
    Dialect(
        "spring",
        items(needs=("field", "defaultMessage"), place=("field",), words=("defaultMessage",), kind=("code",)),
        ("spring.json",),
    ),
    Dialect(
        "json-api",
        items(needs=("source",), place=("source.pointer", "source.parameter"), words=("detail", "title")),
        ("documented.json",),
        sure=False,
    ),
    Dialect(
        "problem-details",  # RFC 9457 section 3, the example with `errors`
        items(needs=("pointer",), place=("pointer",), words=("detail", "message", "title"), kind=("code",)),
        ("documented.json",),
        sure=False,
    ),
    Dialect(
        "problem-details",  # RFC 7807 section 3, the example with `invalid-params`
        items(needs=("name", "reason"), place=("name",), words=("reason",), kind=("code",)),
        ("documented.json",),
        sure=False,
    ),
    Dialect(
        "problem-details",  # huma
        items(needs=("message", "location"), place=("location",), words=("message",), outside=_OUTSIDE),
        ("problem-details.json",),
        sure=False,
    ),
    Dialect(
        "field-list",
        items(
            needs=(),
            place=(
                "field",
                "property",
                "propertyName",
                "propertyPath",
                "param",
                "parameter",
                "attribute",
                "fieldName",
            ),
            words=("message", "msg", "detail", "reason", "error", "description", "errorMessage", "code"),
            kind=("code", "rule", "tag", "type", "errorCode"),
            outside=_OUTSIDE,
        ),
        ("documented.json",),
        sure=False,
    ),
)

_MAPS: Final = (
    Dialect(
        "zod",
        maps(at=("error", "errors", "issues", "details", "data"), marks=("fieldErrors", "formErrors")),
        ("zod.json",),
        sure=False,
    ),
    Dialect("valibot", maps(at=("error", "errors", "issues"), marks=("nested",)), ("valibot.json",), sure=False),
    Dialect(
        "zod",
        maps(at=("error", "errors", "issues", "details"), marks=("_errors", "properties")),
        ("zod.json",),
        sure=False,
    ),
    Dialect("zod", maps(marks=("_errors", "fieldErrors", "formErrors")), ("zod.json",), sure=False),
    Dialect("aspnet", maps(at=("errors",), marks=("traceId", "title")), ("documented.json",), sure=False),
    Dialect(
        "marshmallow",
        maps(at=("errors", "messages", "error"), marks=("json", "_schema")),
        ("marshmallow.json",),
        sure=False,
    ),
)

_WORDS: Final = (
    Dialect("go-json", phrasings.GO_JSON, ("go-json.json",)),
    Dialect("go-validator", phrasings.GO_VALIDATOR, ("go-validator.json",)),
    Dialect("pydantic-text", phrasings.PYDANTIC, ("pydantic-text.json", "mcp-text.json")),
    Dialect("spring", phrasings.SPRING, ("spring.json",)),
    Dialect("serde", phrasings.SERDE, ("serde.json",)),
    Dialect("dotnet-text", phrasings.DOTNET, ("documented.json",)),
    Dialect("jsonschema-text", phrasings.JSONSCHEMA, ("jsonschema-text.json",), sure=False),
    Dialect("ajv-text", phrasings.AJV, ("ajv-text.json",), sure=False),
    Dialect("zod-text", phrasings.ZOD, ("zod-text.json", "mcp-text.json"), sure=False),
    Dialect("joi-text", phrasings.JOI, ("joi-text.json",), sure=False, strict=True),
    Dialect("rails", phrasings.RAILS, ("documented.json",)),
    Dialect("python-text", phrasings.PYTHON, ("documented.json",)),
    Dialect("json-text", phrasings.JSON, ("documented.json",)),
)

# Keys under which frameworks and hand-written handlers put a map of errors.
_HOLDERS: Final = (
    "errors", "error", "detail", "details", "messages", "validationErrors", "fieldErrors", "fields", "field_errors",
    "data", "violations", "failures",
)  # fmt: skip

_LOOSE: Final = (
    Dialect("field-map", maps(at=_HOLDERS, loose=True), ("documented.json",), sure=False),
    Dialect(
        "sentence",
        phrasings.SENTENCE,
        ("class-validator.json", "yup.json", "documented.json"),
        sure=False,
        strict=True,
    ),
    Dialect("field-map", maps(), ("django-rest.json", "marshmallow.json", "documented.json"), sure=False),
    Dialect("field-map", maps(loose=True), ("spring.json",), sure=False, strict=True),
)

DIALECTS: Final[tuple[Dialect, ...]] = (*_LISTS, *_MAPS, *_WORDS, *_LOOSE)
