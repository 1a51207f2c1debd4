"""The dialects in which upstreams report wrong arguments, as one table (contract section 7).

A new dialect needs one entry here and one file of samples; the test suite finds both. The order is the order of trust:
the most specific dialects come first, plain sentences last. The samples under `tests/data/upstream-complaints/` were
made by running the frameworks, unless their README says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.core.tool_errors import phrasings
from proxy.core.tool_errors.readers import Reader, make_items_reader, make_map_reader


@dataclass(frozen=True, slots=True)
class Dialect:
    """One form of complaint. `samples` are the files that show it.

    `sure`: a claim counts although its place is unknown here, because nothing else is ever written in this form. A
    claim of another reader counts where it names a sent or declared argument, or has words that the tables know.
    `strict`: it only counts where it has both.
    """

    name: str
    read: Reader
    samples: tuple[str, ...]
    sure: bool = True
    strict: bool = False


# Places of a request outside of its arguments.
_OUTSIDE: Final = ("header", "headers", "cookie", "cookies")
# Of frameworks that say which parameters stand in the URL (`classify` tells of those).
_URL: Final = (*_OUTSIDE, "path", "query", "params")

_LISTS: Final = (
    Dialect(
        "fastapi",
        make_items_reader(needs=("loc", "msg"), place=("loc",), words=("msg",), kind=("type",), outside=_URL),
        ("fastapi.json",),
    ),
    Dialect(
        "ajv",
        make_items_reader(
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
        make_items_reader(
            needs=("path", "type", "message", "context"), place=("path",), words=("message",), kind=("type",)
        ),
        ("joi.json",),
    ),
    Dialect(
        "zod",
        make_items_reader(
            needs=("code", "path", "message"), place=("path",), words=("message",), kind=("code",), extra=("keys",)
        ),
        ("zod.json",),
    ),
    Dialect(
        "valibot",
        make_items_reader(needs=("kind", "type", "message"), place=("path",), words=("message",), kind=("type",)),
        ("documented.json",),
    ),
    Dialect(
        "express-validator",
        make_items_reader(needs=("msg", "location"), place=("path", "param"), words=("msg",), outside=_URL),
        ("express-validator.json", "documented.json"),
    ),
    Dialect(
        "express-openapi-validator",
        make_items_reader(needs=("path", "errorCode"), place=("path",), words=("message",)),
        ("express-openapi-validator.json",),
    ),
    Dialect(
        "spring",
        make_items_reader(
            needs=("field", "defaultMessage"), place=("field",), words=("defaultMessage",), kind=("code",)
        ),
        ("spring.json",),
    ),
    Dialect(
        "json-api",
        make_items_reader(needs=("source",), place=("source.pointer", "source.parameter"), words=("detail", "title")),
        ("documented.json",),
        sure=False,
    ),
    Dialect(
        "problem-details",  # RFC 9457 section 3, the example with `errors`
        make_items_reader(needs=("pointer",), place=("pointer",), words=("detail", "message", "title"), kind=("code",)),
        ("documented.json",),
        sure=False,
    ),
    Dialect(
        "problem-details",  # RFC 7807 section 3, the example with `invalid-params`
        make_items_reader(needs=("name", "reason"), place=("name",), words=("reason",), kind=("code",)),
        ("documented.json",),
        sure=False,
    ),
    Dialect(
        "problem-details",  # huma
        make_items_reader(needs=("message", "location"), place=("location",), words=("message",), outside=_OUTSIDE),
        ("problem-details.json",),
        sure=False,
    ),
    Dialect(
        "field-list",
        make_items_reader(
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
        make_map_reader(at=("error", "errors", "issues", "details", "data"), marks=("fieldErrors", "formErrors")),
        ("zod.json",),
        sure=False,
    ),
    Dialect(
        "valibot", make_map_reader(at=("error", "errors", "issues"), marks=("nested",)), ("valibot.json",), sure=False
    ),
    Dialect(
        "zod",
        make_map_reader(at=("error", "errors", "issues", "details"), marks=("_errors", "properties")),
        ("zod.json",),
        sure=False,
    ),
    Dialect("zod", make_map_reader(marks=("_errors", "fieldErrors", "formErrors")), ("zod.json",), sure=False),
    Dialect("aspnet", make_map_reader(at=("errors",), marks=("traceId", "title")), ("documented.json",), sure=False),
    Dialect(
        "marshmallow",
        make_map_reader(at=("errors", "messages", "error"), marks=("json", "_schema")),
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
    Dialect("field-map", make_map_reader(at=_HOLDERS, loose=True), ("documented.json",), sure=False),
    Dialect(
        "sentence",
        phrasings.SENTENCE,
        ("class-validator.json", "yup.json", "documented.json"),
        sure=False,
        strict=True,
    ),
    Dialect("field-map", make_map_reader(), ("django-rest.json", "marshmallow.json", "documented.json"), sure=False),
    Dialect("field-map", make_map_reader(loose=True), ("spring.json",), sure=False, strict=True),
)

DIALECTS: Final[tuple[Dialect, ...]] = (*_LISTS, *_MAPS, *_WORDS, *_LOOSE)
