r"""ECMA-262 regular expressions: reads a pattern once, and writes it in the spelling of each matching engine.

A pattern is read from left to right and written twice. One spelling is for RE2, which matches in linear time, the other
for the `regex` package, which backtracks and so supports lookaround, references to groups and atomic groups. Every
construct is written with its ECMA-262 meaning. `\d \w \b` mean ASCII, `\s` and `.` follow the lists of the standard,
and `$` is the end of the text. A surrogate pair is one character, and a reference to a group that took no part matches
the empty text. Accepted as well is what only Annex B of the standard allows (`\-`, a lone `}`), and what authors used
to other dialects plainly mean: `\A`, `\Z`, `\z`, `(?i)`, `(?P<name>...)`.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.model.value_class import value_class

# A longer pattern is not read: reading takes about a microsecond for each character.
MAX_LENGTH: Final = 50_000
# The most repetitions that RE2 allows; a longer repetition is written as several.
_MOST_REPEATED: Final = 1000

_FAR: Final = 0x10FFFF
_SURROGATES: Final = (0xD800, 0xDFFF)

# WhiteSpace and LineTerminator (ECMA-262 12.2, 12.3), as ranges.
_SPACE: Final = (
    (0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
    (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
)  # fmt: skip
_DIGIT: Final = ((0x30, 0x39),)
_WORD: Final = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_LINE_ENDS: Final = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_SETS: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D, "0": 0x00, "a": 0x07}

# Long names of general categories (ECMA-262 table 70) -> the short ones, which both engines know.
_CATEGORIES: Final = {
    "Cased_Letter": "LC", "Close_Punctuation": "Pe", "Connector_Punctuation": "Pc", "Control": "Cc",
    "Currency_Symbol": "Sc", "Dash_Punctuation": "Pd", "Decimal_Number": "Nd", "Enclosing_Mark": "Me",
    "Final_Punctuation": "Pf", "Format": "Cf", "Initial_Punctuation": "Pi", "Letter": "L", "Letter_Number": "Nl",
    "Line_Separator": "Zl", "Lowercase_Letter": "Ll", "Mark": "M", "Combining_Mark": "M", "Math_Symbol": "Sm",
    "Modifier_Letter": "Lm", "Modifier_Symbol": "Sk", "Nonspacing_Mark": "Mn", "Number": "N",
    "Open_Punctuation": "Ps", "Other": "C", "Other_Letter": "Lo", "Other_Number": "No", "Other_Punctuation": "Po",
    "Other_Symbol": "So", "Paragraph_Separator": "Zp", "Private_Use": "Co", "Punctuation": "P", "punct": "P",
    "Separator": "Z", "Space_Separator": "Zs", "Spacing_Mark": "Mc", "Symbol": "S", "Titlecase_Letter": "Lt",
    "Unassigned": "Cn", "Uppercase_Letter": "Lu", "digit": "Nd", "cntrl": "Cc",
}  # fmt: skip
# The categories both engines know by these names.
_SHORT: Final = frozenset(_CATEGORIES.values()) - {"LC", "Cn", "C"} | {"Cs"}

_QUANTIFIER: Final = re.compile(r"([*+?]|\{([0-9]{1,9})(,([0-9]{1,9})?)?\})(\??)")
_PROPERTY: Final = re.compile(r"\\[pP](?:\{(?:(?P<kind>\w+)=)?(?P<name>\w+)\}|(?P<letter>[A-Z]))")
_FLAGS: Final = re.compile(r"\(\?([ims]*(?:-[ims]+)?)([:)])")
_NAMED: Final = re.compile(r"\(\?P?<(?P<name>[^\W\d]\w*)>")
_REFERENCE: Final = re.compile(r"\\k<(?P<name>[^\W\d]\w*)>|\(\?P=(?P<same>[^\W\d]\w*)\)|\\(?P<number>[1-9][0-9]{0,2})")
_UNICODE: Final = re.compile(
    r"\\u[dD](?P<high>[89abAB][0-9a-fA-F]{2})\\u[dD](?P<low>[c-fC-F][0-9a-fA-F]{2})"
    r"|\\u(?:\{(?P<any>[0-9a-fA-F]{1,6})\}|(?P<four>[0-9a-fA-F]{4}))|\\x(?:(?P<two>[0-9a-fA-F]{2})|\{(?P<hex>[0-9a-fA-F]{1,6})\})"
)
# A pattern that is one class, repeated a bounded number of times. The text's length is counted instead, because the
# program of `^[\p{L}]{1,255}$` would take 5 MB.
_COUNTED: Final = re.compile(
    r"\^(\[(?:\\.|[^\]\\])+\]|\.|\\[dDwWsS]|\\[pP]\{\w+\})\{([0-9]{1,9})(,([0-9]{1,9})?)?\}\$", re.DOTALL
)
_COUNTED_FROM: Final = 20
_LOOKS: Final = ("(?=", "(?!", "(?<=", "(?<!", "(?>")

Ranges = tuple[tuple[int, int], ...]


class PatternError(ValueError):
    """A text that is not a regular expression; the message says why."""


class PatternTooLargeError(PatternError):
    """A text beyond the bounds of the reader; the message says which."""


@value_class
class Pattern:
    """A regular expression for RE2 (`linear`, None if it needs backtracking) and for `regex` (`backtracking`).
    `length`, if it is not None, bounds the characters of the text; `linear` then lacks the count of its one
    class."""

    linear: str | None
    backtracking: str
    length: tuple[int, int | None] | None = None


def read_pattern(pattern: str, *, strict: bool = False) -> Pattern:
    """Reads an ECMA-262 pattern; `strict` accepts nothing of other dialects. Raises PatternError."""
    if len(pattern) > MAX_LENGTH:
        message = f"it has {len(pattern):,} characters, and at most {MAX_LENGTH:,} are matched: shorten it"
        raise PatternTooLargeError(message)
    read = _Reader(pattern, strict=strict).read()
    counted = _COUNTED.fullmatch(pattern)
    if counted is None or read.linear is None or int(counted[4] or counted[2]) <= _COUNTED_FROM:
        return read
    most = None if counted[3] and not counted[4] else int(counted[4] or counted[2])
    sole = _Reader(f"^{counted[1]}*$", strict=strict).read()
    return Pattern(sole.linear, read.backtracking, (int(counted[2]), most))


class _Reader:
    """One pass over a pattern. `_linear` and `_back` are the two texts as lists of parts; the last atom of each starts
    at `_atom`, so that a quantifier finds what it repeats."""

    def __init__(self, pattern: str, *, strict: bool) -> None:
        self._pattern = pattern
        self._strict = strict
        self._at = 0
        self._linear: list[str] = []
        self._back: list[str] = []
        self._atom: tuple[int, int] | None = None
        self._needs_backtracking = False
        # Open groups: each with its place, and where its text starts in both spellings.
        self._open: list[tuple[int, tuple[int, int]]] = []
        self._flags: frozenset[str] = frozenset()
        # Every capturing group, in order; `name` is None for one without a name.
        names = [found["name"] for found in _CAPTURING.finditer(pattern) if found[0].startswith("(")]
        self._groups = len(names)
        self._names = {name: number for number, name in enumerate(names, 1) if name is not None}
        if len(self._names) < sum(name is not None for name in names):
            self._fail("two groups have one name")

    def read(self) -> Pattern:
        while self._at < len(self._pattern):
            self._step()
        if self._open:
            self._at = self._open[-1][0]
            self._fail("a group is not closed")
        back = "".join(self._back)
        return Pattern(None if self._needs_backtracking else "".join(self._linear), back)

    def _fail(self, reason: str) -> None:
        raise PatternError(f"{reason} (at character {self._at + 1})")

    def _write(self, linear: str, back: str | None = None, *, atom: bool = False) -> None:
        self._atom = (len(self._linear), len(self._back)) if atom else None
        self._linear.append(linear)
        self._back.append(linear if back is None else back)

    def _step(self) -> None:
        character = self._pattern[self._at]
        match character:
            case "\\":
                self._escape()
            case "[":
                self._at += 1
                self._write(*self._class(), atom=True)
            case "(":
                self._group()
            case ")":
                if not self._open:
                    self._fail("there is no group to close")
                self._at += 1
                self._write(")")
                self._atom = self._open.pop()[1]
            case "|" | "^":
                self._at += 1
                self._write(character)
            case "$":
                self._at += 1
                self._write("$", "$" if "m" in self._flags else r"\Z")
            case ".":
                self._at += 1
                is_any = "s" in self._flags
                self._write(*_set_text(((0, _FAR),) if is_any else _LINE_ENDS, negated=not is_any), atom=True)
            case "*" | "+" | "?" | "{":
                self._quantifier()
            case _:
                self._at += 1
                self._write(*_literal(ord(character)), atom=True)

    # --- escapes ----------------------------------------------------------------------------------------------------
    def _escape(self) -> None:
        rest = self._pattern[self._at + 1 : self._at + 2]
        if rest in ("b", "B"):
            self._at += 2
            self._write(f"\\{rest}", _EDGE if rest == "b" else _NO_EDGE)
            return
        if rest and rest in "AzZ" and not self._strict:
            self._at += 2
            self._write("^" if rest == "A" else "$", r"\A" if rest == "A" else r"\Z")
            return
        found = _REFERENCE.match(self._pattern, self._at)
        if found is not None:
            self._reference(found)
            return
        item = self._member()
        self._write(*(_literal(item) if isinstance(item, int) else item), atom=True)

    def _reference(self, found: re.Match[str]) -> None:
        name = found["name"] or found["same"]
        number = self._names.get(name) if name else int(found["number"])
        if number is None or number > self._groups:
            self._fail(f"{found[0]} names a group that is not there")
        self._at = found.end()
        self._needs_backtracking = True
        # A group that took no part matches the empty text (ECMA-262 22.2.2.7.2).
        self._write("", f"(?({number})\\{number}|)", atom=True)

    def _member(self, *, inside: bool = False) -> int | tuple[str, str]:
        """The meaning of an escape: a character, or a set as its two texts (without brackets inside a class)."""
        pattern, at = self._pattern, self._at
        if (found := _UNICODE.match(pattern, at)) is not None:
            self._at = found.end()
            if found["high"]:
                high, low = int("d" + found["high"], 16), int("d" + found["low"], 16)
                return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)
            value = int(found["any"] or found["four"] or found["two"] or found["hex"], 16)
            if value > _FAR:
                self._fail("there is no such character")
            return value
        if (found := _PROPERTY.match(pattern, at)) is not None:
            return self._property(found, inside=inside)
        letter = pattern[at + 1 : at + 2]
        if letter == "":
            self._fail("a backslash ends the pattern")
        if letter.lower() in _SETS:
            self._at += 2
            return _set_text(_SETS[letter.lower()], negated=letter.isupper(), inside=inside)
        if letter == "c" and (control := pattern[at + 2 : at + 3]).isascii() and control.isalpha():
            self._at += 3
            return ord(control) % 32
        if letter in _CONTROLS and not (letter == "0" and pattern[at + 2 : at + 3] in tuple("0123456789")):
            if letter == "a" and self._strict:
                self._fail(r"\a is not an escape of ECMA-262")
            self._at += 2
            return _CONTROLS[letter]
        if letter.isascii() and letter.isalnum():
            self._fail(f"\\{letter} is not an escape of ECMA-262")
        self._at += 2
        return ord(letter)

    def _property(self, found: re.Match[str], *, inside: bool) -> tuple[str, str]:
        kind, name = found["kind"], found["name"] or found["letter"]
        negated = found[0][1] == "P"
        self._at = found.end()
        head = r"\P" if negated else r"\p"
        if name in ("Any", "ASCII"):
            return _set_text(((0, 0x7F if name == "ASCII" else _FAR),), negated=negated, inside=inside)
        short = _CATEGORIES.get(name, name)
        if kind in (None, "General_Category", "gc") and short in _SHORT:
            return (f"{head}{{{short}}}",) * 2
        if kind in ("Script", "sc") and name.isalpha() and len(name) > 4:
            return f"{head}{{{name}}}", f"{head}{{Script={name}}}"
        self._needs_backtracking = True
        return "", f"{head}{{{kind}={name}}}" if kind else f"{head}{{{name}}}"

    # --- classes ----------------------------------------------------------------------------------------------------
    def _class(self) -> tuple[str, str]:
        start = self._at
        negated = self._pattern.startswith("^", start)
        self._at += negated
        linear = back = ""
        while (following := self._pattern[self._at : self._at + 1]) != "]":
            if not following:
                self._at = start - 1
                self._fail("a class is not closed")
            item = self._class_item()
            linear, back = linear + item[0], back + item[1]
        self._at += 1
        if not back:  # `[]` and a class of lone surrogates match nothing, `[^]` matches anything
            return _set_text(((0, _FAR),), negated=not negated)
        head = "[^" if negated else "["
        return f"{head}{linear}]", f"{head}{back}]"

    def _class_item(self) -> tuple[str, str]:
        low = self._class_atom()
        if not self._pattern.startswith("-", self._at) or self._pattern[self._at + 1 : self._at + 2] in ("]", ""):
            return _both_ranges(((low, low),)) if isinstance(low, int) else low
        if not isinstance(low, int):  # `[\d-x]`: the hyphen is a plain character
            return low
        start, self._at = self._at, self._at + 1
        high = self._class_atom()
        if not isinstance(high, int):
            both = _both_ranges(((low, low), (0x2D, 0x2D)))
            return both[0] + high[0], both[1] + high[1]
        if high < low:
            self._at = start
            self._fail("the range is out of order")
        return _both_ranges(((low, high),))

    def _class_atom(self) -> int | tuple[str, str]:
        character = self._pattern[self._at : self._at + 1]
        if character != "\\":
            self._at += 1
            return ord(character)
        if self._pattern.startswith("\\b", self._at):
            self._at += 2
            return 0x08
        return self._member(inside=True)

    # --- groups and quantifiers -------------------------------------------------------------------------------------
    def _group(self) -> None:
        pattern, at = self._pattern, self._at
        if self._strict and pattern.startswith("(?P", at):
            self._fail("(?P opens no group of ECMA-262")
        if (found := _REFERENCE.match(pattern, at)) is not None:
            self._reference(found)
            return
        if (found := _NAMED.match(pattern, at)) is not None:
            opened, text = found[0], "("
        elif (flags := _FLAGS.match(pattern, at)) is not None and (flags[1] or flags[2] == ":"):
            if flags[1] and self._strict and flags[2] == ")":
                self._fail(f"{flags[0]} is not a group of ECMA-262")
            self._read_flags(flags)
            return
        elif (look := next((look for look in _LOOKS if pattern.startswith(look, at)), None)) is not None:
            self._needs_backtracking = True
            opened = text = look
        elif pattern.startswith("(?", at):
            self._fail(f"{pattern[at : at + 3]} opens no group of ECMA-262")
            return
        else:
            opened = text = "("
        self._begin(opened, text)

    def _begin(self, opened: str, text: str) -> None:
        self._open.append((self._at, (len(self._linear), len(self._back))))
        self._at += len(opened)
        self._write(text)

    def _read_flags(self, found: re.Match[str]) -> None:
        flags = found[1]
        if found[2] == ":":
            if set(flags) - set("i-"):
                self._fail(f"{found[0]}: a group takes no other flag than i")
            self._begin(found[0], found[0])
            return
        if self._at or "-" in flags:
            self._fail(f"{found[0]} is legal only at the start")
        self._at = found.end()
        self._flags = frozenset(flags)
        if kept := "".join(sorted(self._flags - {"s"})):  # the meaning of `.` is written out
            self._write(f"(?{kept})")

    def _quantifier(self) -> None:
        found = _QUANTIFIER.match(self._pattern, self._at)
        if found is None and self._pattern[self._at] == "{":  # Annex B makes it a plain character
            if self._strict:
                self._fail("there is nothing to repeat")
            self._at += 1
            self._write(*_literal(0x7B), atom=True)
            return
        if found is None or self._atom is None:
            self._fail("there is nothing to repeat")
            return
        self._at = found.end()
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(found[1], (int(found[2] or 0), None))
        if found[2]:
            most = int(found[4]) if found[4] else None if found[3] else least
        if most is not None and most < least:
            self._fail("the numbers of the repetition are out of order")
        linear_start, back_start = self._atom
        linear, back = "".join(self._linear[linear_start:]), "".join(self._back[back_start:])
        is_long = max(least, most or 0) > _MOST_REPEATED
        self._linear[linear_start:] = [_write_repeat(linear, least, most) if is_long else linear + found[0]]
        self._back[back_start:] = [back + found[0]]
        self._atom = None


_CAPTURING: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\((?!\?)|\(\?P?<(?P<name>[^\W\d]\w*)>", re.DOTALL)


def _write_repeat(atom: str, least: int, most: int | None) -> str:
    """Writes more repetitions than RE2 allows in one: `least` of them, then up to `most`."""
    further = f"{atom}*" if most is None else _pieces(atom, most - least, "{0,%d}")
    return f"(?:{_pieces(atom, least, '{%d}')}{further})"


def _pieces(atom: str, count: int, form: str) -> str:
    whole, rest = divmod(count, _MOST_REPEATED)
    if whole > _MOST_REPEATED:
        raise PatternTooLargeError(f"{count:,} repetitions are more than the {_MOST_REPEATED**2:,} that are matched")
    return atom.join(("", *[form % _MOST_REPEATED] * whole)) + (atom + form % rest if rest else "")


# --- characters and sets as text -------------------------------------------------------------------------------------
def _literal(character: int) -> tuple[str, str]:
    """A character outside a class. A lone surrogate matches nothing, because no text holds one."""
    text = chr(character)
    if text.isascii() and (text.isalnum() or text in " _"):
        return text, text
    if _SURROGATES[0] <= character <= _SURROGATES[1]:
        return _set_text(((0, _FAR),), negated=True)
    return f"\\x{{{character:x}}}", f"\\U{character:08x}"


def _set_text(ranges: Ranges, *, negated: bool = False, inside: bool = False) -> tuple[str, str]:
    """A whole class in the spelling of both engines, or its replacement inside another one."""
    if inside and negated:
        starts, ends = (0, *(high + 1 for _, high in ranges)), (*(low - 1 for low, _ in ranges), _FAR)
        return _both_ranges(tuple((low, high) for low, high in zip(starts, ends, strict=True) if low <= high))
    if inside:
        return _both_ranges(ranges)
    head, (linear, back) = "[^" if negated else "[", _both_ranges(ranges)
    return f"{head}{linear}]", f"{head}{back}]"


def _both_ranges(ranges: Ranges) -> tuple[str, str]:
    """Ranges inside a class, for RE2 and for `regex`, without the surrogates, which are not characters."""
    first, last = _SURROGATES
    cut = [part for low, high in ranges for part in ((low, min(high, first - 1)), (max(low, last + 1), high))]
    ends = [(low,) if low == high else (low, high) for low, high in cut if low <= high]
    linear = "".join("-".join(f"\\x{{{end:x}}}" for end in pair) for pair in ends)
    return linear, "".join("-".join(f"\\U{end:08x}" for end in pair) for pair in ends)


# The edge of a word in terms of ASCII letters (ECMA-262 22.2.2.9.3). `regex` has no switch just for that.
_EDGE: Final = "(?:(?<![0-9A-Za-z_])(?=[0-9A-Za-z_])|(?<=[0-9A-Za-z_])(?![0-9A-Za-z_]))"
_NO_EDGE: Final = "(?:(?<![0-9A-Za-z_])(?![0-9A-Za-z_])|(?<=[0-9A-Za-z_])(?=[0-9A-Za-z_]))"
