"""Opens an upstream's error body for the dialects: its texts, its objects and its lists, all bounded.

A body is JSON or plain text; frameworks also put JSON into a text (zod's `message`) and texts into JSON. Keys that echo
the request (`input`, `value`, `rejectedValue` ...) are never entered: an argument's own text is not the tool's words.

The meaning of a tool's words: framework names of rules, phrases and type words -> our codes and JSON types.
`KINDS` comes first (a rule's name is exact), then `PHRASES`, whose order matters: "expected string to have >=2
characters" is about a length although it names a type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Final

from proxy.core.explain.places import list_members
from proxy.core.json.jsontext import parse
from proxy.core.model import codes
from proxy.core.model.codes import ViolationCode
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonProblem, JsonValue

# The bytes that are read; an error names its cause early.
LOOKED_AT: Final = 64 * 1024
# The bytes cut off the end of a longer body's readable part: a divided credential would no longer be recognised.
_TORN: Final = 4096
_MOST_NODES: Final = 4000
_MOST_TEXTS: Final = 100
_LONGEST_TEXT: Final = 8192
# The code points of all texts together, because every dialect reads all of them.
_MOST_WORDS: Final = 32_768
_DEEPEST: Final = 8
# How deep texts with JSON are opened: a text inside an opened text is opened once more, and none further inside.
_NESTINGS: Final = 2

# Keys under which a body repeats what was sent, or describes something else than the arguments.
_ECHOES: Final = frozenset([
    "input", "value", "rejectedvalue", "received", "context", "ctx", "params", "arguments", "request", "meta", "stack",
    "stacktrace", "trace", "traceid", "exception", "url", "instance", "timestamp", "headers", "cause",
])  # fmt: skip
# Keys whose texts are words about the error.
_SPOKEN: Final = frozenset([
    "message", "msg", "detail", "details", "error", "errors", "errordescription", "errormessage", "errormessages",
    "reason", "reasons", "title", "description", "text", "originalerror", "messages", "content", "result", "data",
    "fault", "faultstring", "body", "violations", "validationerrors", "issues", "hint", "why", "summary",
])  # fmt: skip

_TAG: Final = re.compile(r"<[^<>]{0,300}>")


@value_class
class ErrorBody:
    """The words of an error body, in order, and all objects and lists in it, outermost first. `prose` is False for an
    HTML page, whose words are not sentences about the call."""

    texts: tuple[str, ...]
    values: tuple[JsonValue, ...]
    prose: bool = True


def open_body(content_type: str, body: bytes) -> ErrorBody:
    """Opens an error body. Looks at its first 64 KiB; never raises."""
    shown = body if len(body) <= LOOKED_AT else body[: LOOKED_AT - _TORN]
    text = shown.decode("utf-8", "replace").replace("\r\n", "\n")
    if "html" in content_type.lower() or text.lstrip()[:9].lower() in ("<!doctype", "<html"):
        import html  # imported here: its table takes a third of a MB, and few tools answer with pages

        return ErrorBody((html.unescape(_TAG.sub("\n", text))[:_LONGEST_TEXT],), (), prose=False)
    opened = _Opened([], [])
    value = _json(text)
    opened.take(text.strip() if value is None else value, 0)
    return ErrorBody(tuple(opened.texts), tuple(opened.values))


def _json(text: str) -> JsonValue:
    """The object, list or text of a JSON document, None for anything else."""
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return None
    value = parse(text.encode("utf-8", "replace"))
    return None if isinstance(value, JsonProblem) else value


@dataclass(slots=True)
class _Opened:
    """Collects the parts of a body while it is opened."""

    texts: list[str]
    values: list[JsonValue]
    words: int = 0

    def take(self, value: JsonValue, nesting: int) -> None:
        """Adds a parsed document, breadth first, so that outer parts come first."""
        queue: list[tuple[JsonValue, int, bool]] = [(value, 0, True)]
        for index, (item, depth, spoken) in enumerate(queue):
            if index >= _MOST_NODES:
                return
            if isinstance(item, str) and spoken:
                self.take_text(item, nesting)
            elif isinstance(item, (dict, list)):
                self.values.append(item)
                names = ((_fold(key) if isinstance(key, str) else "", entry) for key, entry in list_members(item))
                inside = (
                    (entry, depth + 1, name in _SPOKEN if isinstance(item, dict) else spoken)
                    for name, entry in names
                    if name not in _ECHOES
                )
                queue += islice(inside, max(0, _MOST_NODES - len(queue)) if depth < _DEEPEST else 0)

    def take_text(self, text: str, nesting: int) -> None:
        """Adds a text, and the JSON inside it if there is any."""
        if not text.strip() or len(self.texts) >= _MOST_TEXTS or self.words > _MOST_WORDS:
            return
        self.texts.append(text[:_LONGEST_TEXT])
        self.words += len(self.texts[-1])
        found = _JSON_START.search(text) if nesting < _NESTINGS else None
        inner = _json(text[found.start() :].strip()) if found is not None else None
        if isinstance(inner, (dict, list)):
            self.take(inner, nesting + 1)


def _fold(name: str) -> str:
    """A name without case and signs."""
    return "".join(filter(str.isalnum, name.lower()))


# The start of JSON inside a text: an object or a list of objects.
_JSON_START: Final = re.compile(r"\[\s*\{|\{\s*\"|\[\s*\"")


# --- names of rules -------------------------------------------------------------------------------------------------
_NAMED: Final[dict[ViolationCode, str]] = {
    codes.REQUIRED_MISSING: """
        required missing missingargument missingkeywordonlyargument anyrequired notnull notblank notempty isnotempty
        isdefined valueerrormissing blank objectmissing presence requiredif requiredwith requiredwithout emptyfield
        missingfield fieldrequired requiredfield
    """,
    codes.TYPE_MISMATCH: """
        type invalidtype typemismatch int bool number numeric boolean notanumber nonstring isnumber isint isstring
        isboolean isarray isobject isdate isnumberstring invalidnumber notaninteger
    """,
    codes.ENUM_MISMATCH: """
        enum const literalerror anyonly invalidvalue invalidenumvalue invalidliteral oneof isin isenum inclusion
        valueerrorconst typeerrorenum noneof
    """,
    codes.UNKNOWN_FIELD: """
        additionalproperties unevaluatedproperties extraforbidden unexpectedkeywordargument unrecognizedkeys
        objectunknown valueerrorextra whitelistvalidation strictobject nounknown unknownfield
    """,
    codes.CONSTRAINT: """
        minimum maximum exclusiveminimum exclusivemaximum multipleof minproperties maxproperties not min max gt gte lt
        lte len eq ne size positive positiveorzero negative decimalmin decimalmax range toosmall toobig greaterthan
        greaterthanequal lessthan lessthanequal finitenumber notmultipleof
    """,
    codes.STRING_LENGTH: """
        minlength maxlength stringtooshort stringtoolong stringmin stringmax stringlength islength length
        valueerroranystrminlength valueerroranystrmaxlength stringempty
    """,
    codes.ARRAY_LENGTH: """
        minitems maxitems uniqueitems contains mincontains maxcontains tooshort toolong arraymin arraymax arraylength
        arrayunique valueerrorlistminitems valueerrorlistmaxitems arrayminsize arraymaxsize unique
    """,
    codes.PATTERN_MISMATCH: """
        pattern matches stringpatternmismatch stringpatternbase regex valueerrorstrregex alphanum alpha
    """,
    codes.FORMAT_MISMATCH: """
        format invalidformat invalidstring email isemail url uri uuid uuid4 datetime date ip ipv4 ipv6 hostname isurl
        isuuid isdatestring stringemail stringuri stringguid stringisodate valueerroremail valueerrordate
        valueerrordatetime base64 e164
    """,
    codes.INVALID_JSON: "jsoninvalid jsontype valueerrorjsondecode entityparsefailed invalidjson",
}
KINDS: Final[dict[str, ViolationCode]] = {name: code for code, names in _NAMED.items() for name in names.split()}

# Families of names, for the many that are not listed one by one (Pydantic has over a hundred).
_FAMILIES: Final = (
    (re.compile(r"(?:date|time|datetime|timedelta|uuid|url)_(?:\w+_)?(?:parsing|type|version|scheme)$"),
        codes.FORMAT_MISMATCH),
    (re.compile(r"^value_error\.missing|^missing_"), codes.REQUIRED_MISSING),
    (re.compile(r"^value_error\.number"), codes.CONSTRAINT),
    (re.compile(r"^value_error\.(?:url|uuid|date|time|email)"), codes.FORMAT_MISMATCH),
    (re.compile(r"^type_error|_type$|_parsing$|_parsing_size$|^int_from_float$|\.base$|^is_instance_of"),
        codes.TYPE_MISMATCH),
    (re.compile(r"^number\.(?:min|max|greater|less|integer|multiple|positive|negative)"), codes.CONSTRAINT),
    (re.compile(r"^array\."), codes.ARRAY_LENGTH),
    (re.compile(r"^string\."), codes.FORMAT_MISMATCH),
    (re.compile(r"\.unknown$"), codes.UNKNOWN_FIELD),
)  # fmt: skip
# joi reports a fraction in the place of a whole number as `number.integer`.
_EXACT: Final = {"number.integer": codes.TYPE_MISMATCH, "date.base": codes.FORMAT_MISMATCH, "string.base":
                 codes.TYPE_MISMATCH}  # fmt: skip

# Rules about a length if a text or a list was sent: Go validator's `min`, zod's `too_small`, Spring's `Size`.
_SIZES: Final = frozenset(
    ["min", "max", "len", "size", "gt", "gte", "lt", "lte", "eq", "ne", "range", "toosmall", "toobig"]
)

# --- phrases --------------------------------------------------------------------------------------------------------
_TYPE: Final = (
    r"(?:valid |well-formed |`|'|\"|<)?(?:float(?:32|64)?|double|decimal|number|numeric|u?int(?:eger)?(?:8|16|32|64)?"
    r"|whole number|long|str(?:ing)?|text|char(?:acter)?s?|bool(?:ean)?|array|list|sequence|slice|tuple|set"
    r"|dict(?:ionary)?|object|map(?:ping)?|struct|null|none|System\.\w+|[ui](?:8|16|32|64)|f(?:32|64))\b"
)
_EXPECTING: Final = (
    r"(?:must be(?: of type| either)?|should be(?: of type)?|expected(?: type)?:?|is not(?: of type| a valid)?"
    r"|not a valid|expects?|needs? to be|has to be|converted to(?: type)?|requires?|is not a|isn't) (?:a |an |the )?"
)


PHRASES: Final = (
    (codes.UNKNOWN_FIELD, (
        r"additional propert",
        r"(?:unknown|unrecognized|unrecognised|unexpected|unpermitted|undeclared) "
        r"(?:key|field|propert|param|argument|keyword|attribute|member|option)",
        r"should not exist", r"extra (?:inputs?|fields?) (?:are )?not permitted", r"expected never", r"is not allowed$",
        r"not a known (?:field|param|argument)", r"got an unexpected keyword",
    )),
    (codes.REQUIRED_MISSING, (
        r"^Required$", r"required propert", r"received undefined", r"but (?:received|got) undefined",
        r"missing (?:\d+ )?required", r"missing field", r"missing data for", r"is missing", r"field required",
        r"must be (?:present|provided|specified)", r"required (?:field|param|argument|key|value)", r"not provided",
    )),
    (codes.ENUM_MISMATCH, (
        r"one of", r"allowed values", r"valid (?:choice|option)", r"not included in the list", r"is invalid, must be",
        r"enum\b", r"unknown variant", r"must be equal to constant", r"permitted: ", r"Expected \(?[\"']",
        r"should be '", r"not in (?:the )?(?:list|allowed)", r"accepted for Enum", r"selected \w+ is invalid",
    )),
    (codes.STRING_LENGTH, (
        r"characters?\b", r"(?:minimum|maximum|shorter than|longer than) (?:\w+ )?length", r"too (?:short|long)\b",
        r"length (?:must|>=|<=|is)", r"expected length", r"String length", r"invalid length", r"size must be",
    )),
    (codes.ARRAY_LENGTH, (
        r"\bitems?\b.{0,40}\b(?:at least|at most|fewer|more|>=|<=|unique|duplicate)",
        r"(?:at least|at most|fewer than|more than) \d+ (?:items?|elements?|entries)",
        r"non-unique", r"duplicate items",
    )),
    (codes.FORMAT_MISMATCH, (
        r"RFC ?\d{3,5}", r"well-formed email", r"valid (?:email|url|uri|uuid|date|time|ip|timestamp|hostname|iso)",
        r"must match format", r"iso ?8601", r"(?:wrong|invalid) format", r"match(?:es)? (?:the )?format",
        r"parsing time",
        r"cannot parse .{0,60} as \"?(?:date|time)", r"must be an email", r"not a '(?:email|date|uri|uuid|time)",
    )),
    (codes.PATTERN_MISMATCH, (
        r"match(?:es)? (?:the |a |required |exactly )?(?:regex|pattern|regular)", r"does not match", r"fails to match",
        r"expected pattern",
    )),
    (codes.CONSTRAINT, (
        r"(?:greater|less|smaller|larger|bigger|higher|lower|more|fewer) than", r"[<>]=? ?-?\d",
        r"at (?:least|most) -?\d",
        r"between -?\d", r"out of (?:range|bounds)", r"must be (?:positive|negative|non-negative)", r"multiple of",
        r"divisible by", r"too (?:big|small|large|high|low)", r"exceeds?\b", r"be a positive",
    )),
    (codes.TYPE_MISMATCH, (
        _EXPECTING + _TYPE, r"cannot unmarshal", r"(?:invalid|wrong|incorrect|not valid) (?:input )?type",
        r"type mismatch",
        r"type error", r"mismatch type", r"cannot (?:deserialize|construct)", r"could not be converted",
        rf"a valid {_TYPE} is required", r"not an? (?:number|integer)", r"invalid (?:integer|data\. expected)",
        r"Parse(?:Float|Int|Bool)", r"could not convert", r"invalid literal for int", r"must be either object or array",
    )),
    (codes.REQUIRED_MISSING, (
        r"(?:not|n't) be (?:null|nil|blank|empty|none)", r"\bis (?:a )?required\b", r"\bare required\b",
        r"may not be (?:null|blank)", r"is empty", r"null value",
    )),
)  # fmt: skip

# --- types ------------------------------------------------------------------------------------------------------------
_TYPE_NAMES: Final = {
    "number": "number float float32 float64 double decimal numeric f32 f64 single bigdecimal real nan fraction "
    "floatingpoint",
    "integer": "integer int int8 int16 int32 int64 uint uint8 uint16 uint32 uint64 long short byte bigint biginteger "
    "wholenumber i8 i16 i32 i64 u8 u16 u32 u64 usize isize",
    "string": "string str text char varchar charsequence uuid datetime date stringvalue",
    "boolean": "boolean bool true false",
    "array": "array list slice sequence tuple set arraylist collection vec ienumerable",
    "object": "object map dict dictionary struct mapping record hash linkedhashmap jsonobject class",
    "null": "null none nil undefined nonetype unitvalue",
}  # fmt: skip
_TYPES: Final = {name: kind for kind, names in _TYPE_NAMES.items() for name in names.split()}


def find_json_type(words: str) -> str:
    """The JSON type for a type's name (`float64`, `java.lang.Double`, `[]string`, `a map`), '' for an unknown one."""
    text = words[:200].strip("`'\"<>. ").lower()
    if text.startswith("[") or text.endswith("[]") or re.match(r"(?:array|list|vec|set|\w*list)\s*[<\[(]", text):
        return "array"
    if text.startswith(("map[", "struct ", "dict[", "map<", "dictionary<", "{")):
        return "object"
    text = re.sub(r"^(?:an?|the|valid|type)\s+", "", text)
    text = re.split(r"[.$]", re.split(r"[<\[`'\"(,;]", text)[0])[-1].lstrip("*?&").rstrip("?").strip()
    first = text.split()[0] if text else ""
    return _TYPES.get(text.replace(" ", "").replace("-", "")) or _TYPES.get(first, "")


# --- asking -----------------------------------------------------------------------------------------------------------
def find_code_of_kind(kind: str) -> ViolationCode | None:
    """Our code for a framework's own name of a rule."""
    lowered = kind.strip().lower()
    known = _EXACT.get(lowered) or KINDS.get(_fold(lowered))
    return known or next((code for family, code in _FAMILIES if lowered and family.search(lowered)), None)


def is_size(kind: str) -> bool:
    """Returns whether a rule of this name is about a length if a text or a list was sent."""
    return _fold(kind) in _SIZES


def find_code_of_words(words: str) -> ViolationCode | None:
    """Returns our code for the meaning of a sentence, None if it has no known phrase."""
    return next((code for phrase, code in _compile_phrases() if phrase.search(words)), None)


# Compiled on first use or by `complaints.compile_dialects`, because it takes as long as importing a hundred modules.
@cache
def _compile_phrases() -> tuple[tuple[re.Pattern[str], ViolationCode], ...]:
    return tuple((re.compile("|".join(patterns), re.IGNORECASE), code) for code, patterns in PHRASES)


@cache
def _compile_expected() -> re.Pattern[str]:
    return re.compile(rf"{_EXPECTING}(?P<expected>{_TYPE})|a valid (?P<needed>{_TYPE}) is required", re.IGNORECASE)


def find_expected_type(words: str) -> str:
    """The JSON type that a sentence names as expected, '' without one."""
    found = _compile_expected().search(words)
    return find_json_type(found["expected"] or found["needed"]) if found else ""
