"""Hides parts of a text that is shown: secrets (Acode NFR-010), and the places of files on a machine (NFR-011).

Secrets are known by their names, or by texts that look like a credential. In doubt, a value is hidden: a model knows
what it sent, so a masked value costs it little, while a shown secret stays in a transcript forever. Both tables are
closed lists; nothing is guessed from entropy. Every expression starts with a fixed text, so the time to mask grows only
with the text's length.

A file path is shown relative to the operator's roots, else as `…/parent/file`. This only handles text; no path is
looked up. Known spellings: POSIX (`/a/b`), Windows (`C:\\a\\b`, `\\\\server\\share`), `file://` URLs. The path of an
http URL is not a file path and stays.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from proxy.core.model.values import JsonValue
from proxy.core.model.work import remember_short
from proxy.core.schema.nodes import Node, Schemas

MASK: Final = "***"

# Words that make a name secret anywhere in it: `dbPassword`, `password_hash`, `x-api-key`.
_SECRET_PARTS: Final = (
    "password", "passwd", "passphrase", "passcode", "secret", "credential", "authorization",
    "apikey", "accesskey", "privatekey", "secretkey", "signingkey", "encryptionkey", "connectionstring",
    "authtoken", "accesstoken", "refreshtoken", "sessiontoken", "bearertoken", "idtoken", "apitoken",
)  # fmt: skip
# Words that make a name secret only as a whole word: `pwd`, `auth_pwd`. `token` counts only at the end, because
# `token_count` and `max_tokens` are numbers.
_SECRET_WORDS: Final = frozenset({"pwd", "pass", "cookie", "cookies", "otp", "cvv", "cvc", "jwt", "ssn", "bearer"})
_SECRET_ENDS: Final = ("token",)
_SECRET_NAMES: Final = frozenset({"tokens", "auth"})

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")
_NOT_LETTERS: Final = re.compile(r"[\W_]+")

# Only the beginning of a longer name is examined, and remembered.
LONGEST_NAME: Final = 128


def is_secret_name(name: str) -> bool:
    """Returns whether a property of this name holds a secret: password, token, api_key, authorization and their like,
    in any case, spelling style or Unicode compatibility form."""
    return is_short_name_secret(name[:LONGEST_NAME])


@lru_cache(maxsize=4096)
def is_short_name_secret(name: str) -> bool:
    """The same for a name of at most LONGEST_NAME code points, without a further call if it is known."""
    name = unicodedata.normalize("NFKC", name)
    joined = _NOT_LETTERS.sub("", name).casefold()
    if any(part in joined for part in _SECRET_PARTS) or joined in _SECRET_NAMES:
        return True
    words = [word.casefold() for word in _WORDS.findall(name)]
    return joined.endswith(_SECRET_ENDS) or not _SECRET_WORDS.isdisjoint(words)


# The most references followed from a property to the mark; schemas name a secret type once and refer to it.
_REFERENCES: Final = 8


def find_sensitive_names(schemas: Schemas) -> frozenset[str]:
    """The property names a schema marks as secret anywhere: `writeOnly`, `format: password` or `x-sensitive`.

    For `FeedbackLimits.secret_names`. A name counts wherever it is sent.
    """
    found: set[str] = set()
    for node in schemas.nodes():
        for name, place in node.properties.items():
            for _ in range(_REFERENCES):
                if is_sensitive(place):
                    found.add(name)
                if place.reference is None:
                    break
                place = place.reference  # noqa: PLW2901 - the mark may stand behind references
    return frozenset(found)


_SECRET_MARKS: Final = frozenset({"writeOnly", "format", "x-sensitive"})


def is_sensitive(node: Node) -> bool:
    """Returns whether a schema marks its values as secret."""
    if not isinstance(node.raw, dict) or node.raw.keys().isdisjoint(_SECRET_MARKS):
        return False
    return node.get("writeOnly") is True or node.get("format") == "password" or node.get("x-sensitive") is True


# Shapes of well-known credentials. The prefixes are those that their issuers document. The lengths are lower bounds,
# because a sample in a test or a document is often shorter than a real credential.
_SHAPES: Final = {
    "private key": r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]{0,32}PRIVATE KEY-----|\Z)",
    "openai, anthropic": r"sk-(?:[\w-]{20,}|(?=[A-Za-z_-]{0,20}\d)[\w-]{8,})",
    "github": r"gh[pousr]_\w{8,}|github_pat_\w{8,}",
    "gitlab": r"gl(?:pat|ptt|dt|rt|soat)-[\w-]{8,}",
    "aws": r"(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}",
    "google": r"AIza[\w-]{20,}|ya29\.[\w-]{8,}",
    "slack": r"xox[a-z]-[\w-]{6,}|xapp-[\w-]{8,}",
    "stripe": r"[spr]k_(?:live|test)_\w{6,}|whsec_\w{8,}",
    "hugging face, npm, pypi": r"hf_[A-Za-z0-9]{12,}|npm_[A-Za-z0-9]{12,}|pypi-[\w-]{16,}",
    "sendgrid": r"SG\.[\w-]{8,}\.[\w-]{8,}",
    "json web token": r"eyJ[\w-]{6,}\.[\w.=-]{2,}|eyJ[\w-]{16,}",
    "authorization value": r"(?i:bearer|basic)\s{1,4}(?:(?=[A-Za-z._~-]{0,40}[0-9+/=])[\w.~+/=-]{8,}|[\w.~+/=-]{20,})",
}
_USERINFO: Final = r"(?<=://)[^/\s:@\"']{1,256}:[^/\s@\"']{1,256}(?=@)"
# `password=...`, `"api_key": "..."`, also inside JSON within a JSON string.
_KEY: Final = (
    r"(?i:(?:password|passwd|passphrase|pwd|secret)[\w-]{0,24}|(?:api|access|private|secret)[_-]?key"
    r"|(?:access|auth|refresh|bearer|session|api|id)[_-]?token|(?<![\w-])token|authorization|credentials?)"
)
_ASSIGNED: Final = (
    r"(?P<key>" + _KEY + r"[\"'\\]{0,4}\s{0,4}(?:[:=]|=>)\s{0,4})"
    r"(?:\\{1,3}\"[^\"]*\"?|\"(?:[^\"\\]|\\.)*\"?|'[^']*'?|(?i:bearer|basic|token)\s{1,4}[^\s\"',;&}]+|[^\s\"',;&}\])]+)"
)
_SECRET: Final = re.compile(rf"{_ASSIGNED}|{_USERINFO}|(?<![A-Za-z0-9])(?:{'|'.join(_SHAPES.values())})")

# Words behind a name in a signature or an example, in the place of a value.
_TYPES: Final = frozenset(
    ["string", "number", "integer", "boolean", "array", "object", "null", "any", "value", "password", "string[]",
     "date", "date-time", "time", "uuid", "email", "uri"]
)  # fmt: skip

_QUOTE: Final = re.compile(r"\\{0,3}[\"']")

# Each credential holds one of these texts; looking for them is many times quicker than the expression. They are grouped
# by a character that they contain, as most texts lack most of those characters.
_TELLTALES: Final = {
    "-": ("sk-", "glpat-", "glptt-", "gldt-", "glrt-", "glsoat-", "xox", "xapp-", "pypi-", "-----begin"),
    "_": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "k_live_", "k_test_", "whsec_", "hf_", "npm_"),
    ".": ("ya29.", "sg."),
    ":": ("://",),
    "": ("akia", "asia", "aroa", "aida", "aiza", "eyj", "bearer", "basic"),
}
_ASSIGNED_TELLTALES: Final = ("pass", "pwd", "secret", "key", "token", "authorization", "credential")
# No credential is shorter, unless it follows the name it is assigned to, or is in an address.
SHORTEST_SECRET: Final = 11


def may_hold_secret(text: str) -> bool:
    """Whether `mask_credentials` has to examine a text: False says that no part of it holds a credential."""
    assigned = ":" in text or "=" in text
    if len(text) < SHORTEST_SECRET and not assigned:
        return False
    lowered = text.lower()
    for sign, telltales in _TELLTALES.items():
        if sign in text:
            for telltale in telltales:  # any() takes twice as long, and this runs for every text shown
                if telltale in lowered:
                    return True
    for telltale in _ASSIGNED_TELLTALES if assigned else ():  # noqa: SIM110 - as above
        if telltale in lowered:
            return True
    return False


@remember_short
def is_plain(text: str) -> bool:
    """Returns whether a text is shown unchanged: printable ASCII that JSON does not escape, without a credential. Most
    words of our answers are a schema's or our own, and come again with every mistake."""
    is_ascii = text.isascii() and text.isprintable()
    return is_ascii and '"' not in text and "\\" not in text and not may_hold_secret(text)


# How much of a long text is examined beyond the wanted part: no shape needs more to be recognised.
_LOOKAHEAD: Final = 512


def mask_credentials(text: str, limit: int | None = None) -> str:
    """`text` with every credential in it replaced by `***`; with `limit`, at least its first `limit` code points.

    Only a bounded part of a long text is examined. Text too near the end of that part to be recognized is left out, so
    a credential is never shown in part.
    """
    if limit is None or len(text) <= limit + _LOOKAHEAD:
        return _SECRET.sub(_mask_match, text) if may_hold_secret(text) else text
    window, safe = text[: limit + 2 * _LOOKAHEAD], limit + _LOOKAHEAD
    if not may_hold_secret(window):
        return window[:safe]
    parts: list[str] = []
    position = 0
    for found in _SECRET.finditer(window):
        if found.start() >= safe:
            break
        parts += [window[position : found.start()], _mask_match(found)]
        position = found.end()
    parts.append(window[position : max(safe, position)])
    return "".join(parts)


def _mask_match(found: re.Match[str]) -> str:
    """The mask, with the quotes of the text that it replaces, so that masked JSON is still JSON."""
    key = found["key"] or ""
    if key and found[0][len(key) :].strip("\"'\\<>") in _TYPES:
        return found[0]  # `token: string` names a type, not a value
    quotes = _QUOTE.match(found[0], len(key)) if key else None
    around = quotes[0] if quotes else ""
    return f"{key}{around}{MASK}{around}"


# --- file paths -------------------------------------------------------------------------------------------------------
# One step of a path inside a longer text. A path there has two steps or more, so a single `/word` (a JSON Pointer, a
# command) stays.
_STEP: Final = r"[^\s/\\\"'<>|:*?,;()\[\]{}]"
_INSIDE: Final = re.compile(
    rf"(?<![\w/\\:.~%&=?#-])(?:file://)?(?:[A-Za-z]:[\\/]|\\\\(?=\w)|/)(?:{_STEP}+[\\/])+{_STEP}*"
    rf"|(?<=[=:])(?<!://)(?<!\w:/)/(?!/)(?:{_STEP}+/)+{_STEP}*"
)
# A text that is a path as a whole may contain spaces.
_WHOLE: Final = re.compile(r"(?:file://)?(?:[A-Za-z]:[\\/]|\\\\\w|/(?!/))[^\n\r\"'<>|*?]*[\\/][^\n\r\"'<>|*?]*")
_LONGEST_WHOLE: Final = 4096


def shorten_paths(text: str, roots: tuple[str, ...]) -> str:
    """`text` with every absolute file path made relative to one of `roots`, or shown as `…/parent/file`."""
    if "/" not in text and "\\" not in text:
        return text
    if len(text) <= _LONGEST_WHOLE and _WHOLE.fullmatch(text):
        return _show_path(text, roots)
    return _INSIDE.sub(lambda found: _show_path(found[0], roots), text)


def _show_path(path: str, roots: tuple[str, ...]) -> str:
    steps = _steps(path)
    for root in map(_steps, roots):
        fold = str.casefold if root and root[0].endswith(":") else str  # below a drive letter case does not count
        if [*map(fold, steps[: len(root)])] == [*map(fold, root)]:
            return "/".join(steps[len(root) :]) or "."
    return "/".join(("…", *steps[-2:])) if len(steps) > 1 else path


def _steps(path: str) -> list[str]:
    """The steps of a path with `.` and `..` resolved, so that `/base/../etc` does not count as below `/base`."""
    steps: list[str] = []
    for step in re.split(r"[\\/]+", path.removeprefix("file://")):
        if step == "..":
            del steps[-1:]
        elif step not in ("", "."):
            steps.append(step)
    return steps


# --- a name that may be a value ---------------------------------------------------------------------------------------
# The most values that are compared, and the fewest letters and digits that say anything.
_MOST_LEAVES: Final = 256
_FEWEST: Final = 3


def repeats_value(name: str, value: JsonValue) -> bool:
    """Returns whether a name repeats a text or a number inside a value, or a part of one, in any case and with any
    separators.

    A tool may call a field or an error after what it was sent.
    """
    folded = _fold_letters(name)
    stack, looked_at = [value], 0
    while stack and looked_at < _MOST_LEAVES and len(folded) >= _FEWEST:
        item = stack.pop()
        looked_at += 1
        if isinstance(item, (dict, list)):
            stack += item.values() if isinstance(item, dict) else item[:_MOST_LEAVES]
        elif isinstance(item, (str, int, float)) and not isinstance(item, bool):
            leaf = _fold_letters(str(item))
            if folded in leaf or (len(leaf) > _FEWEST and leaf in folded):
                return True
    return False


def _fold_letters(text: str) -> str:
    return "".join(letter for letter in text[:_LONGEST_LEAF].casefold() if letter.isalnum())


_LONGEST_LEAF: Final = 20_000
