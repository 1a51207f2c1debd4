"""One rule for the names of an HTTP request, used where it is read and where it is written. Pure.

Services read names differently: one ignores their case, one cuts them at a bracket, one begins a new parameter at `;`,
one reads a cookie behind a blank. A value whose name some service reads as a declared one is judged under that name, or
not sent. `fold_name` gives the name that the most lenient of them reads; `list_hidden_names` the names that some find
inside of a value; `read_cookies` the cookies, and those that two services read in two ways.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote

Pairs = list[tuple[str, str]]

# RFC 9110 section 5.6.2.
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# A cookie within the text of another, as readers of RFC 2109 find it: behind a comma or a blank.
_COOKIE_WITHIN: Final = re.compile(r"[,\s]\s*\"?([^=;,\s\"]+)\"?\s*=")
_FIRST_WORD: Final = re.compile(r"^\s*\"?([^=;,\s\"]+)\"?(?=[,\s]+[^=,\s]|[,\s]*$)")
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")


def fold_name(name: str) -> str:
    """A name as the most lenient frameworks read it: without case, brackets, quotes and outer blanks, cut at a NUL,
    with `_` for `.` and a blank (PHP)."""
    plain = name.partition("\0")[0].strip().strip("\"'").strip()
    return plain.partition("[")[0].casefold().replace(".", "_").replace(" ", "_")


def find_declared(name: str, folded: Mapping[str, str]) -> str | None:
    """The declared name as which some service reads a name of a query or a form. `folded`: folded name -> declared
    name. Spring's data binding takes `!limit` for the default of `limit`, and `_limit` for an unticked one."""
    plain = fold_name(name)
    return folded.get(plain) or (folded.get(plain[1:]) if plain[:1] in ("!", "_") else None)


def list_hidden_names(query: str) -> Iterator[str]:
    """The names in a query or a form that stand behind a `;`: services that follow HTML 4 (appendix B.2.2) begin a
    parameter there, and `&amp;` is such a place too."""
    if ";" not in query:
        return
    for part in query.split("&"):
        for hidden in part.split(";")[1:]:
            name = hidden.partition("=")[0]
            yield unquote(name.replace("+", " "))


# --- cookies ----------------------------------------------------------------------------------------------------------
def list_cookies(lines: Iterable[str]) -> Pairs:
    """Name and value of each cookie (RFC 6265 section 5.4). The value has its quotes."""
    parts = (part.partition("=") for line in lines for part in line.split(";"))
    return [(name.strip(" \t"), value.strip(" \t")) for name, _, value in parts]


def strip_quotes(value: str) -> str:
    """A cookie's value without the quotes around it."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def find_doubtful_cookies(
    lines: Iterable[str], declared: Iterable[str], json_text: Container[str] = ()
) -> Iterator[str]:
    """The declared cookies that some service reads differently from `list_cookies`, or reads where that has none. The
    values of those in `json_text` may hold any character."""
    by_fold = {fold_name(name): name for name in declared}
    for line in lines:
        quoted = False  # whether a quote before this part is still open
        for part in line.split(";"):
            name, separator, value = part.partition("=")
            is_padded, value = value != value.strip(" \t"), value.strip(" \t")  # Go and PHP keep the blanks
            within = quoted
            quoted ^= _has_open_quote(part if quoted else value)
            if (cookie := by_fold.get(fold_name(decode_cookie(name)))) is not None:
                is_exact = name.lstrip(" ") == cookie and separator and not within and not is_padded
                if not is_exact or not (cookie in json_text or _is_plain(strip_quotes(value))):
                    yield cookie
            bare = _FIRST_WORD.findall(part)  # a name without a value
            for hidden in (*bare, *_COOKIE_WITHIN.findall(part.strip(" \t"))):
                if (cookie := by_fold.get(fold_name(decode_cookie(hidden)))) is not None:
                    yield cookie


def _has_open_quote(text: str) -> bool:
    """Whether a quote that begins in the text does not end in it. A backslash takes the next character's meaning."""
    return text.replace("\\\\", "").replace('\\"', "").count('"') % 2 == 1


def _is_plain(value: str) -> bool:
    """RFC 6265 section 4.1.1, cookie-octet, and the comma of lists."""
    return all("!" <= character <= "~" and character not in '";\\' for character in value)


def is_cookie_octets(value: str) -> bool:
    """Whether every service reads a written cookie's value as it stands: no list, no quote, no escape."""
    return _is_plain(value) and "," not in value and _ESCAPE.search(value) is None


def decode_cookie(value: str) -> str:
    """The value for services that decode `%XX`."""
    return unquote(value)


def is_token(name: str) -> bool:
    """Whether a name can be that of a cookie or a header."""
    return _TOKEN.fullmatch(name) is not None
