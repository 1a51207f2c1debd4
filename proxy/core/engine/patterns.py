r"""ECMA-262 regular expressions, in the spelling the Rust engines read.

jsonschema-rs itself gives `\d \w \s`, `\cX`, `\u{..}` and `$` their ECMA meaning. What it leaves with Rust's
meaning is rewritten here, each by one rule of the table below: `.` stops at four line ends, a class may be empty
(`[]`, `[^]`), inside a class `[`, `&&`, `--` and `~~` are plain characters, `\b` goes by ASCII letters, `\<` is a
plain `<`, `\0` is NUL,
`[\b]` is a backspace, a surrogate pair is one character, `\k<name>` goes by number. A pattern that ECMA-262 refuses
is left as it is: the engine refuses it, or takes it as its author plainly meant (`(?i)`, `\A`).
"""

from __future__ import annotations

import re
from typing import Final

# Characters `.` does not match (ECMA-262 22.2.2.7, without the s flag).
_DOT: Final = r"[^\n\r\u2028\u2029]"

_OUTSIDE: Final = re.compile(
    r"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?P<nul>\\0(?![0-9]))|(?P<angle>\\[<>])|(?P<named>\\k<(?P<name>[^>]*)>)|(?P<edge>\\[bB])|(?P<escape>\\.)"
    r"|(?P<anything>\[\^\])|(?P<nothing>\[\])|(?P<open>\[\^?)|(?P<dot>\.)",
    re.DOTALL,
)
_INSIDE: Final = re.compile(
    r"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?P<nul>\\0(?![0-9]))|(?P<angle>\\[<>])|(?P<backspace>\\b)|(?P<shorthand>\\[dDsSwW]-(?!\]))|(?P<escape>\\.)"
    r"|(?P<bracket>\[)|(?P<double>&&|--|~~)|(?P<close>\])",
    re.DOTALL,
)
_GROUP: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\((?!\?)|\(\?<(?P<name>[^>=!]+)>", re.DOTALL)


# The edge of a word goes by ASCII letters (ECMA-262 22.2.2.9.3). The backtracking engine has no switch for that.
_EDGES: Final = {
    True: {r"\b": r"(?-u:\b)", r"\B": r"(?-u:\B)"},
    False: {
        r"\b": "(?:(?<![0-9A-Za-z_])(?=[0-9A-Za-z_])|(?<=[0-9A-Za-z_])(?![0-9A-Za-z_]))",
        r"\B": "(?:(?<![0-9A-Za-z_])(?![0-9A-Za-z_])|(?<=[0-9A-Za-z_])(?=[0-9A-Za-z_]))",
    },
}


def translate(pattern: str, *, linear: bool = True) -> str:
    """Takes an ECMA-262 pattern; gives one with the same meaning for the linear or the backtracking engine.

    Never raises.
    """
    parts: list[str] = []
    position, inside = 0, False
    while position < len(pattern):
        found = (_INSIDE if inside else _OUTSIDE).search(pattern, position)
        if found is None:
            break
        parts.append(pattern[position : found.start()])
        kind = found.lastgroup if found.lastgroup != "name" else "named"
        parts.append(_EDGES[linear][found[0]] if kind == "edge" else _replacement(kind, found, pattern))
        inside = kind == "open" or (inside and kind != "close")
        position = found.end()
    return "".join(parts) + pattern[position:]


def _replacement(kind: str | None, found: re.Match[str], pattern: str) -> str:
    text = found[0]
    match kind:
        case "pair":
            high, low = int(text[2:6], 16), int(text[8:12], 16)
            return f"\\u{{{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):x}}}"
        case "nul":
            return r"\x00"
        case "backspace":
            return r"\x08"
        case "angle":
            return text[1]
        case "named":
            return _by_number(found["name"], pattern) or text
        case "shorthand":
            return text[:2] + r"\-"
        case "anything":
            return r"[\s\S]"
        case "nothing":
            return r"[^\s\S]"
        case "dot":
            return _DOT
        case "bracket":
            return r"\["
        case "double":
            at_start = pattern[: found.start()].endswith(("[", "[^")) and text == "--"
            return r"\--" if at_start else text[0] + "\\" + text[1]
        case _:
            return text


def _by_number(name: str, pattern: str) -> str | None:
    names = [found["name"] for found in _GROUP.finditer(pattern) if found[0].startswith("(")]
    return f"(?:\\{names.index(name) + 1})" if name in names else None
