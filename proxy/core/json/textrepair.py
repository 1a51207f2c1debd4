"""Text repair: reads JSON with common mistakes, class by class, and only after strict parsing failed.

One scanner passes over the text once, copies every token as it was sent and changes only what an allowed class may
change (docs/repair.md). The result must then parse strictly, so a repaired text keeps every bound of a clean one.
Nothing is ever completed: unbalanced braces or quotes end the attempt (a truncated call must not be executed). No token
is invented, dropped or reordered; the classes only remove what surrounds the value or respell one token.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Final

from proxy.core.json.strictreader import DEFAULT_LIMITS, read_strictly
from proxy.core.model.values import JsonProblem, JsonValue

_FENCED: Final = re.compile(r"```[A-Za-z0-9]*[ \t]*(.*)```", re.DOTALL)
_SPACE: Final = " \t\n\r"
_WORD = re.compile(r"[A-Za-z0-9_+\-.]+")
_STRICT_WORD = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_PYTHON_WORDS: Final = {"True": "true", "False": "false", "None": "null"}
_WINDOWS_PATH = re.compile(r"[A-Za-z]:\\|\\\\[A-Za-z0-9]")
# A second drive is a second line of a text, whose `\n` is a line break.
_DRIVE = re.compile(r"[A-Za-z]:\\")
# Inside of a string: an escape, a backslash without a meaning, a character that needs an escape, or a single backslash.
_SPECIAL: Final = re.compile(r"""\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\(?P<needless>'|\$(?=[0-9]))|["\\\x00-\x1f]""")
# Arguments are an object, or a string that holds one; no other text is repaired.
_ARGUMENTS_START: Final = ("{", "[", '"')
# Markup of a call: `<tool_call>`, `<|python_tag|>`, `[TOOL_CALLS]`. Tags of an answer or an example are none.
_TAG: Final = r"(?:antml:|minimax:)?(?:tool_calls?|function_calls?|tool_use|invoke|function|parameter|arg_value)"
_TEMPLATE: Final = (
    r"<[|｜](?![^<>]*(?:response|output|result))"
    r"(?:[\w▁]*(?:tool|call|python|end|eot|eom|return|stop)[\w▁]*)[|｜]>"
)
_BEFORE_CALL: Final = re.compile(rf"\A\s*(?:(?:<{_TAG}>|{_TEMPLATE}|\[TOOL_CALLS\])\s*)+(?=[{{\[])")
_AFTER_CALL: Final = re.compile(rf"\s*(?:(?:</{_TAG}>|{_TEMPLATE})\s*)+\Z")
# The text that may be cut behind a complete object: one closing bracket, fences and a call's closing tags.
_CUT: Final = re.compile(rf"\s*[\]}}]?\s*(?:(?:```|</{_TAG}>|{_TEMPLATE})\s*)*\Z")
_BARE_KEY: Final = re.compile(r"[A-Za-z_$][\w$]*(?=[ \t\n\r]*:)", re.ASCII)
_NEXT = re.compile(r"[ \t\n\r]*(.)", re.DOTALL)
_BEFORE_INNER: Final = " \t\n\r=("
_STRUCTURE_AFTER: Final = ",:]}"
_QUOTES: Final = ('"', "'", "“")
# A larger text is not repaired: the scan takes under a tenth of a second.
_MAX_MENDED_TEXT: Final = 256 * 1024
# The strict reader refuses deeper texts, whatever the limits say.
_MAX_MENDED_DEPTH: Final = 200


def repair_text(text: bytes, classes: frozenset[str]) -> tuple[bytes, tuple[str, ...]] | None:
    """The text with the allowed classes applied, still to be parsed strictly, and those needed; None if they fail."""
    if not classes or len(text) > _MAX_MENDED_TEXT:
        return None
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError:
        return None
    used: list[str] = []
    if "code_fence" in classes and (fenced := _inside_fence(decoded)) is not None:
        used.append("code_fence")
        decoded = fenced
    if "call_markup" in classes:
        called = _AFTER_CALL.sub("", _BEFORE_CALL.sub("", decoded, count=1), count=1)
        if called != decoded and called.lstrip(_SPACE)[:1] in ("{", "["):
            used.append("call_markup")
            decoded = called
    if "escaped_text" in classes and (plain := _read_escaped(decoded)) is not None:
        return plain.encode("utf-8", "surrogatepass"), (*used, "escaped_text")
    scanner = _Scanner(decoded, classes)
    try:
        repaired = scanner.run()
    except _UnreadableError:
        return None
    used.extend(sorted(scanner.used))
    return (repaired.encode("utf-8", "surrogatepass"), tuple(used)) if used else None


def _inside_fence(text: str) -> str | None:
    """The content of a Markdown fence or code span that encloses the whole text, or None without one."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == "`" and "`" not in text[1:-1]:
        return text[1:-1]
    fenced = _FENCED.fullmatch(text)
    return fenced and fenced[1]


def _read_escaped(text: str) -> str | None:
    """Returns a text of which every quote is escaped once more, by a backslash or as an HTML entity, without these
    escapes. None for any other text, and if the result does not parse strictly."""
    stripped = text.strip(_SPACE)
    if stripped[:1] != "{" or '"' in stripped.replace('\\"', ""):
        return None
    is_entity = '"' not in stripped
    read = unescape(stripped) if is_entity else _read(f'"{stripped}"')
    return read if isinstance(read, str) and not isinstance(_read(read), JsonProblem) else None


def _read(text: str) -> JsonValue | JsonProblem:
    return read_strictly(text.encode("utf-8", "surrogatepass"), DEFAULT_LIMITS)


class _UnreadableError(Exception):
    """The text needs more than the allowed classes can change."""


class _Scanner:
    """Copies a text token by token. `used` collects the names of the classes that were needed."""

    def __init__(self, text: str, classes: frozenset[str]) -> None:
        self.text = text
        self.classes = classes
        self.used: set[str] = set()
        self.out: list[str] = []
        self.at = 0
        # An unknown escape anywhere means that the writer of this text did not escape backslashes at all.
        self.escapes_unknown = re.search(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})', text) is not None

    def run(self) -> str:
        """Raises _UnreadableError."""
        self._blank()
        if self._peek() not in _ARGUMENTS_START:
            raise _UnreadableError
        self._value()
        first, rest = self.text[: self.at].strip(_SPACE), self.text[self.at :]
        self._blank()
        if self.at < len(self.text):
            is_repeated = rest.strip(_SPACE) == first
            if first[:1] not in ("{", "[") or not (is_repeated or _CUT.fullmatch(rest)):
                raise _UnreadableError
            self._need("repeated_body" if is_repeated else "trailing_text")
        return "".join(self.out)

    def _need(self, name: str) -> None:
        if name not in self.classes:
            raise _UnreadableError
        self.used.add(name)

    def _blank(self) -> None:
        while self.at < len(self.text):
            closing = {"//": "\n", "/*": "*/"}.get(self.text[self.at : self.at + 2])
            if closing is not None:
                self._need("comments")
                end = self.text.find(closing, self.at + 2)
                if end < 0:
                    raise _UnreadableError
                self.at = end + len(closing)
            elif self.text[self.at] in _SPACE:
                self.at += 1
            else:
                return

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _copy(self) -> None:
        self.out.append(self.text[self.at])
        self.at += 1

    def _value(self) -> None:
        """Copies one value. Containers use a stack of closing brackets, so depth costs no recursion."""
        stack: list[str] = []
        while True:
            self._blank()
            char = self._peek()
            if char in ("{", "["):
                stack.append("}" if char == "{" else "]")
                if len(stack) > _MAX_MENDED_DEPTH:
                    raise _UnreadableError
                self._copy()
                if not self._closes(stack):
                    self._key(stack)
                    continue
            elif char in _QUOTES:
                self._string()
            else:
                self._bare()
            if not self._next(stack):
                return

    def _closes(self, stack: list[str]) -> bool:
        self._blank()
        if self._peek() != stack[-1]:
            return False
        self._copy()
        stack.pop()
        return True

    def _key(self, stack: list[str]) -> None:
        if stack[-1] != "}":
            return
        self._blank()
        if (bare := _BARE_KEY.match(self.text, self.at)) is not None:
            self._need("bare_keys")
            self.out.append(f'"{bare[0]}"')
            self.at = bare.end()
        elif self._peek() in _QUOTES:
            self._string()
        else:
            raise _UnreadableError
        self._blank()
        if self._peek() != ":":
            raise _UnreadableError
        self._copy()

    def _next(self, stack: list[str]) -> bool:
        """Moves past closing brackets and the comma to the start of the next value; False at the end."""
        while stack:
            if self._closes(stack):
                continue
            if self._peek() != ",":
                raise _UnreadableError
            self.at += 1
            self._blank()
            if self._peek() == stack[-1]:
                self._need("trailing_commas")
                continue
            self.out.append(",")
            self._key(stack)
            return True
        return False

    def _bare(self) -> None:
        if (found := _WORD.match(self.text, self.at)) is None:
            raise _UnreadableError
        word = found[0]
        if word in _PYTHON_WORDS:
            self._need("python_literals")
            word = _PYTHON_WORDS[word]
        if not _STRICT_WORD.fullmatch(word):
            raise _UnreadableError
        self.out.append(word)
        self.at = found.end()

    # --- strings ----------------------------------------------------------------------------------------------------
    def _string(self) -> None:
        quote, start = self.text[self.at], self.at + 1
        if quote == "'":
            self._need("single_quotes")
        if quote == "“":
            self._need("curly_quotes")
            end = self.text.find("”", start)
            if end < 0 or "“" in self.text[start:end] or not self._ends_here(end):  # more than one reading
                raise _UnreadableError
        else:
            end = self._find_end(start, quote)
        raw = self.text[start:end]
        starts = _WINDOWS_PATH.match(raw) and len(_DRIVE.findall(raw)) < 2
        if starts and self.escapes_unknown and "\\\\" not in raw[2:]:
            self._need("windows_paths")
            raw = raw.replace("\\", "\\\\")
        self.out.append('"' + self._respell(raw, quote) + '"')
        self.at = end + 1

    def _find_end(self, at: int, quote: str) -> int:
        """The place of the closing quote. A quote before it can only belong to the text: it opens like one in prose
        (`say "hi" now`) or in an attribute (`href="x"`), or closes behind a word. Any other may belong to a second
        string."""
        is_inside = False
        while at < len(self.text):
            if self.text[at] == quote:
                if self._ends_here(at) or "unescaped_quotes" not in self.classes or quote == "'":
                    break
                before, after = self.text[at - 1], self.text[at + 1 : at + 2]
                closes = before not in _SPACE and not after.isalnum()
                if not (closes if is_inside else before in _BEFORE_INNER and after not in _SPACE):
                    raise _UnreadableError
                is_inside = not is_inside
            at += 2 if self.text[at] == "\\" else 1
        if at >= len(self.text) or is_inside:
            raise _UnreadableError
        return at

    def _ends_here(self, at: int) -> bool:
        found = _NEXT.match(self.text, at + 1)
        return found is None or found[1] in _STRUCTURE_AFTER

    def _respell(self, raw: str, quote: str) -> str:
        """The content of one string, with every character that strict JSON refuses escaped."""

        def respell(found: re.Match[str]) -> str:
            if needless := found["needless"]:
                if needless != quote:
                    self._need("needless_escapes")
                return needless
            if found[0] == '"':
                if quote == '"':
                    self._need("unescaped_quotes")
                return '\\"'
            if found[0] < " ":
                self._need("control_characters")
                return f"\\u{ord(found[0]):04x}"
            if found[0] == "\\":
                raise _UnreadableError
            return found[0]

        return _SPECIAL.sub(respell, raw)
