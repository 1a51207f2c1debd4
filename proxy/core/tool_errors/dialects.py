"""The dialects in which upstreams report wrong arguments, as one table (docs/upstream.md).

A new dialect needs one entry in the table below and one file of samples under `tests/data/upstream-complaints/`. The
order is the order of trust: the most specific dialects come first, plain sentences last.

`readers.make_phrase_reader` explains the groups of the regular expressions. Every repetition is bounded, so that the
time to read grows only with the text's length. A pattern begins with fixed words wherever its framework allows it.
"""

from __future__ import annotations

from typing import Final

from proxy.core.model import codes
from proxy.core.model.value_class import value_class
from proxy.core.tool_errors.readers import Reader, make_items_reader, make_map_reader, make_phrase_reader


@value_class
class Dialect:
    """One form of complaint. `sure`: a claim counts although its place is unknown here, because nothing else is ever
    written in this form. Otherwise it needs a sent or declared argument, or known words; `strict`: both. both."""

    name: str
    read: Reader
    sure: bool = True
    strict: bool = False


# --- lists and maps of errors -----------------------------------------------------------------------------------------
# Places of a request outside of its arguments, and those that `classify` explains.
_OUTSIDE: Final = ("header", "headers", "cookie", "cookies", "path", "query", "params")

# Three frameworks whose lists say nothing else, and one reader for the lists of all others. These are joi, valibot,
# express-validator, Spring, JSON:API, huma, RFC 9457 (section 3, the example with `errors`) and RFC 7807 (section 3,
# the one with `invalid-params`).
_LISTS: Final = (
    Dialect("fastapi", make_items_reader(
        needs=("loc", "msg"), place=("loc",), words=("msg",), kind=("type",), outside=_OUTSIDE)),
    Dialect("ajv", make_items_reader(
        needs=("keyword", "message"), place=("instancePath", "dataPath"), words=("message",), kind=("keyword",),
        extra=("params.missingProperty", "params.additionalProperty", "params.unevaluatedProperty"))),
    Dialect("zod", make_items_reader(
        needs=("code", "path", "message"), place=("path",), words=("message",), kind=("code",), extra=("keys",))),
    Dialect("list", make_items_reader(
        needs=(),
        place=("path", "field", "property", "propertyName", "propertyPath", "param",
               "parameter", "attribute", "fieldName", "pointer", "source.pointer", "source.parameter"),
        words=("msg", "message", "defaultMessage", "detail", "reason", "error", "description", "errorMessage", "title",
               "code"),
        kind=("code", "rule", "tag", "type", "errorCode"), outside=_OUTSIDE), sure=False),
    Dialect("list", make_items_reader(
        needs=("name", "reason"), place=("name",), words=("reason",), kind=("code",)), sure=False),
    Dialect("list", make_items_reader(
        needs=("message", "location"), place=("location",), words=("message",), outside=_OUTSIDE[:4]), sure=False),
)  # fmt: skip

_MAPS: Final = (
    Dialect("zod", make_map_reader(
        at=("error", "errors", "issues", "details", "data"), marks=("fieldErrors", "formErrors")), sure=False),
    Dialect("valibot", make_map_reader(at=("error", "errors", "issues"), marks=("nested",)), sure=False),
    Dialect("zod", make_map_reader(
        at=("error", "errors", "issues", "details"), marks=("_errors", "properties")), sure=False),
    Dialect("zod", make_map_reader(marks=("_errors", "fieldErrors", "formErrors")), sure=False),
)  # fmt: skip

# --- words ------------------------------------------------------------------------------------------------------------
_GO_TYPE: Final = r"(?P<expected>struct \{[^\n]{0,200}?\}|[^\s\",]{1,200})"
_GO_GOT: Final = r"(?:JSON )?(?P<got>string|number|bool|array|object|null)(?: (?P<quoted>-?\d[\d.eE+-]{0,60}))?"
_JACKSON: Final = (
    r"(?:Cannot|Can not) (?:deserialize|construct|coerce)[^`\n]{0,60}`(?P<expected>[^`\n]{1,200})`[^\n]{0,200}?"
    r" (?:from|out of) (?:(?P<got>String|Boolean|Integer|Floating-point|Object|Array|Null)(?: value)?|START_\w{5,6})"
    r"(?: \(?[\"'](?P<quoted>[^\"'\n]{0,200})[\"']\)?)?"
    r"(?:: not one of the values accepted for Enum class: \[[^\]\n]{0,300}\]|: [^\n(]{0,200})?"
)
# Matched by lookahead behind the words, once for each, because the text between is not part of them.
_JACKSON_CHAIN: Final = r"(?:(?=[\s\S]{0,600}?\(through reference chain: (?P<chain>[^)\n]{1,800})\)))?"
_SERDE_GOT: Final = (
    r"(?:(?P<got>string|integer|floating point|boolean|map|sequence|null|unit value|character|byte array)"
    r"(?: [\"`](?P<quoted>[^\"`\n]{0,200})[\"`])?|[^,\n]{1,60}?)"
)
_SERDE_PATH: Final = r"(?:target type: |^)(?P<path>[\w$-]{1,100}(?:\.[\w$-]{1,100}|\[\d{1,9}\]){0,20}): "
_SERDE_END: Final = r"(?= at line \d+ column \d+|$|\n)"
_SERDE_TYPE: Final = (
    rf"(?P<words>invalid (?:type|value): {_SERDE_GOT}, expected (?P<expected>[^\n]{{1,200}}?)){_SERDE_END}"
)
_SERDE_VARIANT: Final = (
    rf"(?P<words>unknown variant `(?P<quoted>[^`\n]{{0,200}})`, expected [^\n]{{1,400}}?){_SERDE_END}"
)
_ZOD: Final = (
    r"(?:Invalid (?:input|option|type|key|value|string|email|url|enum value|literal value|format|ISO \w{1,20})"
    r"|Too (?:big|small)|Expected [\w ]{1,40}, received|Required\b|Unrecognized key|String must|Number must|Array must)"
)

_WORDS: Final = (
    # encoding/json (v1, and v2 behind GOEXPERIMENT=jsonv2), echo's binder, strconv and time.Parse.
    Dialect("go-json", make_phrase_reader(
        (rf"cannot unmarshal {_GO_GOT} into (?:Go )?(?:struct field )?[^\s.\"]{{0,200}}\.(?P<path>[^\s\"]{{0,300}})"
         rf" of type {_GO_TYPE}", codes.TYPE_MISMATCH),
        (rf"cannot unmarshal {_GO_GOT} into Go value of type {_GO_TYPE}", codes.TYPE_MISMATCH),
        (rf"Unmarshal type error: expected={_GO_TYPE}, got={_GO_GOT}, field=(?P<path>[^,\n]{{0,300}}), offset=\d+",
         codes.TYPE_MISMATCH),
        (r"json: unknown field \"(?P<name>[^\"\n]{1,200})\"", codes.UNKNOWN_FIELD),
        (r"strconv\.Parse(?P<expected>Float|Int|Bool|Uint): parsing \"(?P<quoted>[^\"\n]{0,200})\": [\w ]{1,60}",
         codes.TYPE_MISMATCH),
        (r"parsing time \"+(?P<quoted>[^\"\n]{0,200})\"+(?: as |: )[^\n]{0,200}", codes.FORMAT_MISMATCH),
        (r"(?P<root>)(?:invalid character '[^\n]{1,6}' (?:looking|after|in) [\w :-]{1,80}|unexpected end of JSON input"
         r"|^unexpected EOF$|^EOF$)", codes.INVALID_JSON),
    )),
    # go-playground/validator, alone and in gin's binding. It only gives the name of the broken rule.
    Dialect("go-validator", make_phrase_reader(
        (r"Key: '[^'.\n]{0,200}\.?(?P<path>[^'\n]{1,300})' Error:\s?Field validation for '[^'\n]{1,200}' failed on the "
         r"'(?P<kind>[^'\n]{1,60})' tag", None),
    )),
    # `str(ValidationError)` of Pydantic 1 and 2, FastMCP's answer to wrong arguments.
    Dialect("pydantic-text", make_phrase_reader(
        (r"^(?!\d+ validation errors? for)(?P<path>\S[^\n]{0,300})\n"
         r"  (?P<words>[^\n]{1,400}?) [\[(]type=(?P<kind>[\w.]{1,80})", None),
        (r"^\d+ validation errors? for [^\n]{1,200}\n"
         r"  (?P<root>)(?P<words>[^\n]{1,400}?) \[type=(?P<kind>[\w.]{1,80})", None),
    )),
    # Jackson, alone and after Spring's "JSON parse error"; Spring's own sentences, two of which name no argument.
    Dialect("spring", make_phrase_reader(
        (r"(?P<words>Unrecognized field \"(?P<name>[^\"\n]{1,200})\" \(class [^)\n]{1,200}\))", codes.UNKNOWN_FIELD),
        (rf"(?P<words>{_JACKSON}){_JACKSON_CHAIN}", None),
        (rf"(?P<words>Numeric value \([^)\n]{{1,60}}\) out of range of [\w .]{{1,60}}){_JACKSON_CHAIN}",
         codes.CONSTRAINT),
        (r"(?P<root>)Required request body is missing", codes.INVALID_JSON),
        (r"(?P<words>Field error in object '[^'\n]{0,200}' on field '(?P<path>[^'\n]{1,200})')[^\n]{0,1000}?"
         r"codes \[(?P<kind>\w{1,60})", None),
        (r"^Failed to read request$|^Invalid request content\.$"
         r"|^Validation failed for object='[^'\n]{1,200}'\. Error count: \d+$", None),
    )),
    # serde's own messages: axum and serde_path_to_error put the place before them, serde_json line and column after.
    Dialect("serde", make_phrase_reader(
        (_SERDE_PATH + _SERDE_TYPE, codes.TYPE_MISMATCH),
        (_SERDE_TYPE, codes.TYPE_MISMATCH),
        (_SERDE_PATH + _SERDE_VARIANT, codes.ENUM_MISMATCH),
        (_SERDE_VARIANT, codes.ENUM_MISMATCH),
        (rf"{_SERDE_PATH}(?P<words>unknown field `[^`\n]{{1,200}}`(?:, expected [^\n]{{1,600}}?)?){_SERDE_END}",
         codes.UNKNOWN_FIELD),
        (rf"(?P<words>unknown field `(?P<name>[^`\n]{{1,200}})`(?:, expected [^\n]{{1,600}}?)?){_SERDE_END}",
         codes.UNKNOWN_FIELD),
        (rf"{_SERDE_PATH}(?P<words>missing field `[^`\n]{{1,200}}`)", codes.REQUIRED_MISSING),
        (r"(?P<words>missing field `(?P<name>[^`\n]{1,200})`)", codes.REQUIRED_MISSING),
        (rf"(?P<root>)(?P<words>invalid length \d+, expected (?P<expected>[^\n]{{1,200}}?)){_SERDE_END}",
         codes.TYPE_MISMATCH),
    )),
    # python-jsonschema, `str(error)` and `error.message`.
    Dialect("jsonschema-text", make_phrase_reader(
        (r"^(?P<words>[^\n]{1,2000})\n\nFailed validating '(?P<kind>\w{1,40})' in schema[\s\S]{1,12000}?\n\nOn instance"
         r"(?P<path>[^\n:]{0,300}):", None),
        (r"^(?P<words>'(?P<name>[^'\n]{1,200})' is a required property)$", codes.REQUIRED_MISSING),
        (r"^(?P<words>Additional properties are not allowed \('(?P<name>[^'\n]{1,200})' (?:was|were) unexpected\))$",
         codes.UNKNOWN_FIELD),
        (r"^(?:'(?P<quoted>[^'\n]{0,400})'|(?P<got>True|False|None|\{[^\n]{0,800}\}|\[[^\n]{0,800}\])) "
         r"(?P<words>(?:is not (?:of type '(?P<expected>\w{1,40})'|one of|a '|valid under)|is too (?:short|long)"
         r"|does not match)[^\n]{0,300})$", None),
        (r"^(?P<quoted>-?\d[\d.eE+-]{0,60}) (?P<words>(?:is not (?:of type '(?P<expected>\w{1,40})'|one of|a multiple)"
         r"|is (?:less|greater) than)[^\n]{0,300})$", None),
    ), sure=False),
    # AJV's `errorsText`, fastify's message.
    Dialect("ajv-text", make_phrase_reader(
        (r"(?:^|[\s,;:])(?:data|body|request/body|request\.body|requestBody|instance|params|querystring|input)"
         r"(?P<path>(?:[/.][^\s,/.]{1,200}|\[\d{1,9}\]){0,20}) (?P<words>(?:must|should) [^\n]{1,300}?)"
         r"(?=, (?:data|body|params|querystring)[/. ]|$|\n)", None),
    ), sure=False),
    # zod's `prettifyError`, zod-validation-error, and the MCP SDK's "... at stops[1].lat".
    Dialect("zod-text", make_phrase_reader(
        (rf"(?:✖ |^|[:;] )(?P<words>{_ZOD}[^\n]{{0,300}}?)(?:\n\s{{0,8}}→ at |(?: at \"?))"
         r"(?P<path>[\w$.\[\]-]{1,200})\"?(?=$|\n|;)", None),
        (r"(?:✖ |^|: )(?P<words>Unrecognized keys?(?:\(s\) in object)?: [\"'](?P<name>[^\"'\n]{1,200})[\"'])",
         codes.UNKNOWN_FIELD),
        (r"(?:✖ |^|: )(?P<root>)(?P<words>Invalid (?:input|type): [Ee]xpected \w{1,20}, received \w{1,20}"
         r"|Expected \w{1,20}, received \w{1,20})$", None),
    ), sure=False),
)  # fmt: skip

# --- anybody ----------------------------------------------------------------------------------------------------------
_VERBS: Final = (
    r"(?:must|should|is|are|cannot|can't|can not|has|have|needs|may not|was|does|length|expects?|requires?)\b"
)
_NOUNS: Final = r"(?:field|parameter|argument|property|param|key|value)"
_END: Final = r"(?=[;.!] |[;.!]?$|\n)"
# Keys under which frameworks and hand-written handlers put a map of errors.
_HOLDERS: Final = (
    "errors", "error", "detail", "details", "messages", "validationErrors", "fieldErrors", "fields", "field_errors",
    "data", "violations", "failures",
)  # fmt: skip

_LOOSE: Final = (
    Dialect("field-map", make_map_reader(at=_HOLDERS, loose=True), sure=False),
    # A sentence whose subject is an argument: class-validator, yup, Rails' full messages, Laravel, and handlers written
    # by hand ("Amount must be greater than 0").
    Dialect("sentence", make_phrase_reader(
        (r"(?:^|[.:;,] )(?P<sentence>(?:(?P<items>each value in )|nested property |property |[Ff]ield |[Pp]arameter "
         r"|[Aa]rgument |[Tt]he |[Vv]alue (?:of|for) ){0,3}"
         r"[\"'`]?(?P<path>[A-Za-z_$][\w$.\[\]-]{0,120}|[A-Z][a-z]{1,40}(?: [a-z]{1,40}){1,2})[\"'`]? "
         rf"(?:{_NOUNS} )?(?P<words>{_VERBS}[^\n]{{1,300}}?)){_END}", None),
        (rf"(?:^|[:.;] )(?P<words>(?:[Mm]issing|[Rr]equired)(?: required)? {_NOUNS}s?:? "
         r"[\"'`]?(?P<name>[\w.-]{1,120}))", codes.REQUIRED_MISSING),
        (rf"(?P<words>(?:[Uu]nknown|[Uu]nexpected|[Uu]nrecognized|[Ii]nvalid|[Uu]nsupported) "
         rf"(?:(?:type|value|format) (?:for|of)|{_NOUNS})s?:? (?:the )?(?:{_NOUNS} )?"
         rf"[\"'`]?(?P<path>[\w.\[\]-]{{1,120}})[^\n]{{0,200}}?){_END}", None),
        (r"(?:^|[.;] )(?P<sentence>[\"'`]?(?P<path>[\w.\[\]-]{1,120})[\"'`]?: "
         rf"(?P<words>[^\n]{{1,300}}?)){_END}", None),
        prose=True,
    ), sure=False, strict=True),
    Dialect("field-map", make_map_reader(), sure=False),
    Dialect("field-map", make_map_reader(loose=True), sure=False, strict=True),
)  # fmt: skip

DIALECTS: Final[tuple[Dialect, ...]] = (*_LISTS, *_MAPS, *_WORDS, *_LOOSE)
