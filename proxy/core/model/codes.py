"""The catalogue of error codes. Every code that an answer, a metric label or a docs row names is a constant here.

There are three tables: `Category` (what kind of trouble, with GoMind's HTTP status), `ErrorCode` (what happened to the
call) and `ViolationCode` (what is wrong with one value). No other file spells a code. Docs tables, metric labels and
the envelope are generated from `ERROR_CODES` and `VIOLATION_CODES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Category(StrEnum):
    """GoMind's error categories (Intelligent Error Handling, part 1); they decide the default HTTP status."""

    INPUT_ERROR = "INPUT_ERROR"
    NOT_FOUND = "NOT_FOUND"
    AUTH_ERROR = "AUTH_ERROR"
    RATE_LIMIT = "RATE_LIMIT"
    SERVICE_ERROR = "SERVICE_ERROR"


# GoMind `HTTPStatusForCategory`.
STATUS_OF_CATEGORY = {
    Category.INPUT_ERROR: 400, Category.NOT_FOUND: 404, Category.AUTH_ERROR: 401, Category.RATE_LIMIT: 429,
    Category.SERVICE_ERROR: 503,
}  # fmt: skip


class Severity(StrEnum):
    """Acode FR-008: `error` blocks the call, `warning` and `info` are reported and the call is forwarded."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


# CPython 3.11 takes longer to look up a member of an enum than to call a function.
ERROR = Severity.ERROR


class ErrorType(StrEnum):
    """The kinds of error that a client distinguishes (`error.error_type`)."""

    VALIDATION = "validation_error"
    CONTAINER = "container_invocation_error"
    TOOL = "tool_error"
    BUDGET = "budget_exceeded"
    ESCALATION = "escalation"


# Each code is one constant, compared as such. Code that mypy does not see gets it too: it is frozen at run time.
@dataclass(frozen=True, slots=True, eq=False)
class ErrorCode:
    """One way a call can fail. `retryable` says whether another call by the model can succeed."""

    name: str
    category: Category
    status: int
    retryable: bool
    error_type: ErrorType
    meaning: str
    remedy: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)  # as above
class ViolationCode:
    """One way a value can break its schema (Acode FR-009..FR-017). `hpd` is the HPD specification's name for it."""

    name: str
    hpd: str
    meaning: str

    def __str__(self) -> str:
        return self.name


_INPUT, _NOT_FOUND, _AUTH, _RATE_LIMIT, _SERVICE = Category


def _input(name: str, status: int, retryable: bool, meaning: str, remedy: str) -> ErrorCode:
    return ErrorCode(name, _INPUT, status, retryable, ErrorType.TOOL, meaning, remedy)


def _service(name: str, status: int, meaning: str, remedy: str) -> ErrorCode:
    return ErrorCode(name, _SERVICE, status, True, ErrorType.TOOL, meaning, remedy)


# --- calls the model can mend -------------------------------------------------------------------------------------
INVALID_ARGUMENTS = ErrorCode("INVALID_ARGUMENTS", _INPUT, 400, True, ErrorType.VALIDATION,
    "The arguments break the tool's schema.", "Please correct these errors and call the tool again.")  # fmt: skip
CONTAINER_INVOCATION = ErrorCode("CONTAINER_INVOCATION", _INPUT, 400, True, ErrorType.CONTAINER,
    "A container was called with parameters.",
    "Call the container with no arguments first, then call the function you need.")  # fmt: skip
CONTAINER_NOT_EXPANDED = ErrorCode("CONTAINER_NOT_EXPANDED", _INPUT, 400, True, ErrorType.CONTAINER,
    "A function was called before its container was expanded.",
    "Call the container with no arguments first, then call this function again.")  # fmt: skip
UNKNOWN_TOOL = ErrorCode("UNKNOWN_TOOL", _NOT_FOUND, 404, True, ErrorType.VALIDATION,
    "No tool of this name is known.", "Call one of the known tools by its exact name.")  # fmt: skip
UPSTREAM_REJECTED_ARGUMENTS = ErrorCode("UPSTREAM_REJECTED_ARGUMENTS", _INPUT, 400, True, ErrorType.VALIDATION,
    "The tool itself refused the arguments.", "Please correct these errors and call the tool again.")  # fmt: skip

# --- limits of a conversation -------------------------------------------------------------------------------------
ATTEMPTS_EXHAUSTED = ErrorCode("ATTEMPTS_EXHAUSTED", _INPUT, 400, False, ErrorType.ESCALATION,
    "The same tool was called wrongly too often in this conversation.",
    "Stop calling this tool and ask the user for guidance.")  # fmt: skip
CALL_CAP_EXCEEDED = ErrorCode("CALL_CAP_EXCEEDED", _INPUT, 400, False, ErrorType.BUDGET,
    "The tool was called as often as this conversation may call it.",
    "Go on without this tool: use what you already have, or ask the user.")  # fmt: skip
TOOL_ERROR_BUDGET = ErrorCode("TOOL_ERROR_BUDGET", _INPUT, 400, False, ErrorType.BUDGET,
    "The tool answered with errors as often as this conversation may have them.",
    "Go on without this tool: use what you already have, or tell the user what went wrong.")  # fmt: skip

CALL_RATE_EXCEEDED = ErrorCode("CALL_RATE_EXCEEDED", _RATE_LIMIT, 429, True, ErrorType.BUDGET,
    "More calls came than `limits.rate` allows; the call was not sent.",
    "Wait, then make the same call again.")  # fmt: skip
TOO_MANY_CALLS_AT_ONCE = ErrorCode("TOO_MANY_CALLS_AT_ONCE", _RATE_LIMIT, 429, True, ErrorType.BUDGET,
    "As many calls are under way as `limits.concurrent` allows; the call was not sent.",
    "Make the same call again when one of the others has been answered.")  # fmt: skip

# --- the operator's own rules (docs/hooks.md) ---------------------------------------------------------------------
CALL_NOT_ALLOWED = ErrorCode("CALL_NOT_ALLOWED", _AUTH, 403, False, ErrorType.TOOL,
    "A hook or a rule of the operator does not allow this call.",
    "This cannot be mended by another call: tell the user.")  # fmt: skip
TOOL_NOT_APPROVED = ErrorCode("TOOL_NOT_APPROVED", _AUTH, 403, False, ErrorType.TOOL,
    "The tool is not defined as the operator has approved it; the call was not sent.",
    "This cannot be mended by another call: tell the user.")  # fmt: skip
HOOK_FAILED = _service("HOOK_FAILED", 503,
    "A hook of the operator failed, and without it no call is let through.", "Try again in a moment.")  # fmt: skip

# --- requests that are not calls -----------------------------------------------------------------------------------
BAD_REQUEST = _input(
    "BAD_REQUEST", 400, False, "The HTTP request is malformed.", "Send a well-formed HTTP/1.1 request."
)
ROUTE_NOT_FOUND = ErrorCode("ROUTE_NOT_FOUND", _NOT_FOUND, 404, False, ErrorType.TOOL,
    "No route has this path.", "Check the URL against the configured routes.")  # fmt: skip
METHOD_NOT_ALLOWED = _input("METHOD_NOT_ALLOWED", 405, False,
    "The route does not take this HTTP method.", "Use one of the methods in the Allow header.")  # fmt: skip
OPERATION_LEFT_OUT = _input("OPERATION_LEFT_OUT", 501, False,
    "The service has this operation, but its calls cannot be judged here.",
    "The operator can let it through unjudged: `relay: true` on its route.")  # fmt: skip
HOST_NOT_SERVED = ErrorCode("HOST_NOT_SERVED", _NOT_FOUND, 421, False, ErrorType.TOOL,
    "The request names a host that is not served here.",
    "Use one of the names this proxy is configured for.")  # fmt: skip
TOKEN_REQUIRED = ErrorCode("TOKEN_REQUIRED", _AUTH, 401, False, ErrorType.TOOL,
    "The proxy asks for a bearer token that it knows.",
    "This cannot be mended by another call: tell the user.")  # fmt: skip
TOKEN_UNCHECKED = _service("TOKEN_UNCHECKED", 503,
    "The bearer token cannot be checked: the keys of its issuer cannot be fetched now.",
    "Try again in a moment.")  # fmt: skip
ORIGIN_NOT_ALLOWED = ErrorCode("ORIGIN_NOT_ALLOWED", _AUTH, 403, False, ErrorType.TOOL,
    "Pages of this origin may not call this route.", "Ask the operator to list the origin under `cors`.")  # fmt: skip
BODY_TOO_LARGE = ErrorCode("BODY_TOO_LARGE", _INPUT, 413, True, ErrorType.VALIDATION,
    "The body is larger than the route takes.",
    "Send less: shorten the longest argument or split the work over several calls.")  # fmt: skip
UNSUPPORTED_MEDIA_TYPE = _input("UNSUPPORTED_MEDIA_TYPE", 415, False,
    "Arguments must come as JSON.", "Send the header Content-Type: application/json and a JSON body.")  # fmt: skip
EXPECTATION_FAILED = _input("EXPECTATION_FAILED", 417, False,
    "The Expect header names something other than 100-continue.", "Leave the Expect header out.")  # fmt: skip
HEADERS_TOO_LARGE = _input(
    "HEADERS_TOO_LARGE", 431, False, "The request's headers are too large.", "Send fewer or shorter headers."
)
INTERNAL_ERROR = ErrorCode("INTERNAL_ERROR", _SERVICE, 500, False, ErrorType.TOOL,
    "The proxy itself failed.", "Report the request id to the operator.")  # fmt: skip
HEADER_MISMATCH = _input("HEADER_MISMATCH", 400, False,
    "The request's headers and its body do not say the same.", "Send in the headers what the body says.")  # fmt: skip

# --- the way to the tool ------------------------------------------------------------------------------------------
UPSTREAM_TIMEOUT = _service("UPSTREAM_TIMEOUT", 504, "The tool did not answer in time.", "Try again later.")
UPSTREAM_UNAVAILABLE = _service(
    "UPSTREAM_UNAVAILABLE", 502, "The tool's service could not be reached.", "Try again later."
)
UPSTREAM_BAD_ANSWER = _service(
    "UPSTREAM_BAD_ANSWER", 502, "The tool's service broke off or gave no valid answer.", "Try again later."
)
SCHEMA_UNKNOWN = _service(
    "SCHEMA_UNKNOWN", 503, "The tool's schema could not be found out, so its call was not sent.", "Try again later."
)
UPSTREAM_UNFIT_ANSWER = ErrorCode("UPSTREAM_UNFIT_ANSWER", _SERVICE, 502, False, ErrorType.TOOL,
    "The tool ran, but its answer breaks its response schema.",
    "Do not repeat the call: tell the user that the tool's answer cannot be used.")  # fmt: skip
ANSWER_TOO_LARGE = ErrorCode("ANSWER_TOO_LARGE", _SERVICE, 502, True, ErrorType.TOOL,
    "The tool ran, but its answer is larger than the operator allows.",
    "If the call only reads, call the tool again with arguments that select less. Do not repeat a call that changes "
    "something.")  # fmt: skip
NOT_CONFIRMED = ErrorCode("NOT_CONFIRMED", _SERVICE, 503, False, ErrorType.TOOL,
    "The tool's schema accepts the arguments, but the second judge did not confirm it, so the call was not sent.",
    "Do not repeat the call: tell the user, who can report the request id to the operator.")  # fmt: skip
RESTARTING = _service("RESTARTING", 503, "The proxy is shutting down.", "Try again in a moment.")
OVERLOADED = _service("OVERLOADED", 503, "Too many calls to this tool are under way.", "Try again in a moment.")
CIRCUIT_OPEN = _service(
    "CIRCUIT_OPEN", 503, "The tool failed repeatedly, so it gets no calls for a moment.", "Try again in a moment."
)

# --- what tools say, in GoMind's words (Intelligent Error Handling, "Common Tool Error Codes") ----------------------
INVALID_REQUEST = _input("INVALID_REQUEST", 400, True,
    "The tool refused the request.", "Read the tool's own words, change the arguments and call it again.")  # fmt: skip
LOCATION_NOT_FOUND = ErrorCode("LOCATION_NOT_FOUND", _NOT_FOUND, 404, True, ErrorType.TOOL,
    "The tool knows no such location.", "Try another spelling, such as 'City, Country'.")  # fmt: skip
SYMBOL_NOT_FOUND = ErrorCode(
    "SYMBOL_NOT_FOUND", _NOT_FOUND, 404, True, ErrorType.TOOL, "The tool knows no such symbol.", "Try another symbol."
)
RESOURCE_NOT_FOUND = ErrorCode("RESOURCE_NOT_FOUND", _NOT_FOUND, 404, True, ErrorType.TOOL,
    "The tool did not find what was asked for.", "Try another name or id.")  # fmt: skip
MISSING_REQUIRED_FIELD = _input(
    "MISSING_REQUIRED_FIELD", 400, True, "The tool misses a field.", "Add the field and call the tool again."
)
INVALID_FORMAT = _input("INVALID_FORMAT", 400, True,
    "The tool refused the format of a value.", "Change the value's format and call the tool again.")  # fmt: skip
API_KEY_MISSING = ErrorCode("API_KEY_MISSING", _AUTH, 401, False, ErrorType.TOOL,
    "The tool lacks an API key.", "This cannot be mended by another call: tell the user.")  # fmt: skip
API_KEY_INVALID = ErrorCode("API_KEY_INVALID", _AUTH, 401, False, ErrorType.TOOL,
    "The tool's API key is refused.", "This cannot be mended by another call: tell the user.")  # fmt: skip
UNAUTHORIZED = ErrorCode("UNAUTHORIZED", _AUTH, 401, False, ErrorType.TOOL,
    "The tool refused access.", "This cannot be mended by another call: tell the user.")  # fmt: skip
RATE_LIMIT_EXCEEDED = ErrorCode("RATE_LIMIT_EXCEEDED", _RATE_LIMIT, 429, True, ErrorType.TOOL,
    "The tool is called too often.", "Wait, then make the same call again.")  # fmt: skip
SERVICE_UNAVAILABLE = _service(
    "SERVICE_UNAVAILABLE", 503, "The tool's service has a fault.", "The same call may work later."
)
REQUEST_TIMEOUT = _service("REQUEST_TIMEOUT", 504, "The tool gave up waiting.", "The same call may work later.")

ERROR_CODES: dict[str, ErrorCode] = {
    value.name: value for value in list(globals().values()) if isinstance(value, ErrorCode)
}

# --- violations ---------------------------------------------------------------------------------------------------
REQUIRED_MISSING = ViolationCode("VAL-001", "REQUIRED_FIELD", "Required field missing")
TYPE_MISMATCH = ViolationCode("VAL-002", "TYPE_MISMATCH", "Type mismatch")
CONSTRAINT = ViolationCode(
    "VAL-003", "CONSTRAINT_VIOLATION", "Constraint violation (min/max, multipleOf, number of properties, not)"
)
INVALID_JSON = ViolationCode("VAL-004", "INVALID_JSON", "Invalid JSON syntax")
UNKNOWN_FIELD = ViolationCode("VAL-005", "UNKNOWN_FIELD", "Unknown field")
ARRAY_LENGTH = ViolationCode("VAL-006", "ARRAY_LENGTH", "Array length, uniqueness or content violation")
PATTERN_MISMATCH = ViolationCode("VAL-007", "PATTERN_MISMATCH", "Pattern mismatch")
ENUM_MISMATCH = ViolationCode("VAL-008", "INVALID_ENUM_VALUE", "Invalid enum or const value")
STRING_LENGTH = ViolationCode("VAL-009", "STRING_LENGTH", "String length violation")
FORMAT_MISMATCH = ViolationCode("VAL-010", "INVALID_FORMAT", "Format violation")
NO_BRANCH = ViolationCode("VAL-011", "NO_MATCHING_ALTERNATIVE", "No alternative of a union fits")
AMBIGUOUS = ViolationCode("VAL-012", "AMBIGUOUS_VALUE", "Several repairs are possible")
LEAKED_MARKUP = ViolationCode("VAL-013", "LEAKED_MARKUP", "Markup of the tool call itself inside a text")
DEPRECATED_FIELD = ViolationCode("VAL-014", "DEPRECATED_FIELD", "Deprecated field")

VIOLATION_CODES: dict[str, ViolationCode] = {
    value.name: value for value in list(globals().values()) if isinstance(value, ViolationCode)
}
