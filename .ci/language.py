"""Checks that sentences are plain English: subject, verb, object, and at most 30 words.

    python .ci/language.py                 checks user-facing text; prints each finding (`make lint` runs it)
    python .ci/language.py --code          prints the number of findings of each package, and of the evidence pages
    python .ci/language.py --code PATH...  prints each finding in the comments, docstrings and test names of PATH

User-facing text is README.md, docs/ except docs/evidence, the descriptions of JSON Schemas, the chart's notes, the
comments of its values and of config.example.yaml, and the messages in proxy/. Code blocks, code spans
and quoted text do not count. Exit codes: 0 success, 1 problems found.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
LONGEST = 30
# The name of each pattern says what to write instead.
PATTERNS = {
    "begin with a noun, not with a clause": re.compile(r"(?:^|[.:;(] )(?:What|Who|Where|Whether) [a-z][^?]*$"),
    "write `if` or `when` for a condition": re.compile(
        r"\bwhere (?:it|they|none|that|no|a|an|the) .*\b(?:is|are|has|have)\b", re.IGNORECASE
    ),
    "use a plain verb or adverb": re.compile(
        r"\b(?:stands?|goes on|told|is asked|are asked|anew|meanwhile|of its own|of their own|no longer .* than)\b",
        re.IGNORECASE,
    ),
    "write `only` before the noun": re.compile(r"\b\w+ alone\b", re.IGNORECASE),
}
DOCSTRING = re.compile(r"(?:What|Who|Where|How|Why|Those|Gives)\b")

_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"``.*?``|`[^`]*`|\"[^\"\n]*\"|“[^”\n]*”|(?<!\w)'[^'\n]*'(?!\w)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_MARKUP = re.compile(r"<!--.*?-->|<[^>\n]+>|\*\*|__", re.DOTALL)
_END = re.compile(r"(?<!e\.g)(?<!i\.e)(?<!vs)[.!?][)*]*\s+(?=[A-Z0-9`(*\[]|[a-z]+json\w* )|\n\s*\n|:\n| · ")
_WORD = re.compile(r"\w")


class Finding(NamedTuple):
    """One sentence that breaks one pattern."""

    path: str
    line: int
    advice: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.advice}: {self.sentence[:160]}"


class Text(NamedTuple):
    """A piece of prose, the line it begins at, and its kind."""

    line: int
    text: str
    kind: str


def check(path: str, pieces: Iterator[Text]) -> Iterator[Finding]:
    """Returns the findings of the pieces of one file."""
    for piece in pieces:
        if piece.kind == "docstring" and DOCSTRING.match(piece.text):
            yield Finding(path, piece.line, "begin with a verb in the third person", piece.text.split("\n")[0])
        offset = 0
        for sentence, at in split(plain(piece.text)):
            offset = piece.line + at
            for advice, pattern in PATTERNS.items():
                if pattern.search(sentence):
                    yield Finding(path, offset, advice, sentence)
            words = sum(1 for word in sentence.split() if _WORD.search(word))
            if (
                words > LONGEST and sentence.count("CODE") * 2 < words and piece.kind != "name"
            ):  # a list of names is none
                yield Finding(path, offset, f"{words} words: use at most {LONGEST}", sentence)


def plain(text: str) -> str:
    """Returns the text without code, quotes and links; line breaks stay."""
    text = _FENCE.sub(lambda found: "\n\n" + "\n" * found[0].count("\n"), text)
    text = _SPAN.sub(lambda found: "CODE" + "\n" * found[0].count("\n"), text)
    return _MARKUP.sub("", _LINK.sub(r"\1", text))


def split(text: str) -> Iterator[tuple[str, int]]:
    """Returns each sentence with the number of the line it begins at."""
    begin = 0
    for end in [*(found.end() for found in _END.finditer(text)), len(text)]:
        sentence = " ".join(text[begin:end].split())
        if sentence:
            lead = len(text[begin:end]) - len(text[begin:end].lstrip())
            yield sentence, text.count("\n", 0, begin + lead)
        begin = end


# --- kinds of files ---------------------------------------------------------------------------------------------------
def read_markdown(text: str) -> Iterator[Text]:
    """Returns each paragraph, list item, heading and table cell of a page."""
    text = _FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)
    waiting: list[str] = []
    begin = 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        bare = line.strip().lstrip("> ")
        item = re.match(r"(?:[-*+]|\d+\.) +", bare)
        row = bare.startswith("|")
        if waiting and (not bare or item or row or bare.startswith(("#", "![", "<"))):
            yield Text(begin, "\n".join(waiting), "prose")
            waiting = []
        if row:
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", bare)]
            yield from (Text(number, cell, "prose") for cell in cells if cell.strip(":- "))
        elif bare.startswith("#"):
            yield Text(number, bare.lstrip("# "), "prose")
        elif bare:
            begin = begin if waiting else number
            waiting.append(bare[item.end() :] if item else bare)


def read_descriptions(text: str) -> Iterator[Text]:
    """Returns each `title` and `description` of a JSON Schema."""

    def walk(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            yield from (
                each for key, each in value.items() if key in ("title", "description") and isinstance(each, str)
            )
            value = list(value.values())
        if isinstance(value, list):
            for each in value:
                yield from walk(each)

    for found in walk(json.loads(text)):
        encoded = json.dumps(found, ensure_ascii=False)[1:-1]
        yield Text(text.count("\n", 0, max(text.find(encoded), 0)) + 1, found, "prose")


def read_comments(text: str) -> Iterator[Text]:
    """Returns each block of `#` comments of a YAML or similar file."""
    waiting: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        found = re.match(r"\s*#+ ?(.*)$|.*?\s#+ (.*)$", line)
        whole = found is not None and found[1] is not None
        example = whole and found is not None and re.match(r"  |[\w.]+: |- ", found[1])  # config that is commented out
        if waiting and (not whole or example):
            yield Text(number - len(waiting), "\n".join(waiting), "comment")
            waiting = []
        if whole and found is not None:
            waiting.append("" if example or found[1].startswith(("@schema", "yaml-language-server")) else found[1])
        elif found is not None:
            yield Text(number, found[2], "comment")


def read_python(text: str, *, literals: bool) -> Iterator[Text]:
    """Returns docstrings, comments and names of tests, or the string literals that hold a sentence."""
    tree = ast.parse(text)
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if (
                not literals
                and node.__class__ in (ast.FunctionDef, ast.AsyncFunctionDef)
                and node.name.startswith("test_")
            ):
                yield Text(node.lineno, node.name.replace("_", " "), "name")
            for place, statement in enumerate(node.body):
                said = statement.value if isinstance(statement, ast.Expr) else None
                if isinstance(said, ast.Constant) and isinstance(said.value, str):
                    docstrings.add(id(said))
                    if not literals:
                        yield Text(said.lineno, _drop_examples(said.value), "attribute" if place else "docstring")
    if literals:
        yield from _list_literals(tree, docstrings)
    else:
        yield from _list_comments(text)


def _drop_examples(text: str) -> str:
    """Returns a docstring without lines that are indented deeper than its text: commands, tables and pictures."""
    lines = text.split("\n")
    least = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    return "\n".join("" if number and line.startswith(" " * (least + 2)) else line for number, line in enumerate(lines))


def _list_literals(tree: ast.AST, docstrings: set[int]) -> Iterator[Text]:
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "CODE" for part in node.values]
            said = "".join(str(part) for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | inside:
            said = node.value
        else:
            continue
        said = re.sub(r"^ {2,}.*$", "", said, flags=re.MULTILINE)  # commands and tables
        said = re.sub(r"\n(?=# |exit codes: )", "\n\n", said)
        words = re.findall(r"[A-Za-z]{2,}", said)
        is_list = len(words) > LONGEST and not re.search(r"[.,:;]", said)
        if (
            len(words) >= 3
            and " " in said.strip()
            and not is_list
            and not re.search(r"redis\.call|KEYS\[|ARGV\[", said)
        ):
            yield Text(node.lineno, said, "message")


def _list_comments(text: str) -> Iterator[Text]:
    waiting: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        said = token.string.lstrip("#").strip()
        if re.match(r"noqa|type:|fmt:|pragma|!|---", said) or set(said) <= {"-", " "}:
            continue
        said = re.sub(r"\s*#? *noqa.*$", "", re.sub(r"-{5,}$", "", said))
        own = token.line.strip().startswith("#")
        if waiting and (not own or token.start[0] != waiting[-1][0] + 1):
            yield Text(waiting[0][0], "\n".join(each for _, each in waiting), "comment")
            waiting = []
        waiting.append((token.start[0], said))
        if not own:
            yield Text(token.start[0], said, "comment")
            waiting = []
    if waiting:
        yield Text(waiting[0][0], "\n".join(each for _, each in waiting), "comment")


# --- which files ------------------------------------------------------------------------------------------------------
def check_user_facing() -> Iterator[Finding]:
    """Returns the findings of everything that a user reads."""
    evidence = ROOT / "docs" / "evidence"
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        if page.parent != evidence:
            yield from check(_name(page), read_markdown(page.read_text(encoding="utf-8")))
    schemas = [*sorted((ROOT / "schemas").rglob("*.json")), *sorted((ROOT / "proxy").rglob("*schema*.json"))]
    for schema in [*schemas, ROOT / "helm" / "values.schema.json"]:
        if schema.is_file():
            yield from check(_name(schema), read_descriptions(schema.read_text(encoding="utf-8")))
    for values in [ROOT / "helm" / "values.yaml", ROOT / "config.example.yaml"]:
        yield from check(_name(values), read_comments(values.read_text(encoding="utf-8")))
    for notes in sorted((ROOT / "helm").rglob("NOTES.txt")):
        text = re.sub(r"\{\{.*?\}\}", "CODE", notes.read_text(encoding="utf-8"), flags=re.DOTALL)
        yield from check(_name(notes), iter([Text(1, text, "prose")]))
    for source in sorted((ROOT / "proxy").rglob("*.py")):
        yield from check(_name(source), read_python(source.read_text(encoding="utf-8"), literals=True))


def check_code(paths: list[Path] | None = None) -> Iterator[Finding]:
    """Returns the findings of comments, docstrings and names of tests; of all packages, those of the evidence too."""
    if paths is None:
        for page in sorted((ROOT / "docs" / "evidence").glob("*.md")):
            yield from check(_name(page), read_markdown(page.read_text(encoding="utf-8")))
    for source in paths or sorted(
        path for folder in ("proxy", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")
    ):
        yield from check(_name(source), read_python(source.read_text(encoding="utf-8"), literals=False))


def count_code() -> Counter[str]:
    """Returns the number of findings of each package of proxy/, of tests, of benchmarks and of docs/evidence."""
    return Counter(name_package(finding.path) for finding in check_code())


def name_package(path: str) -> str:
    """Returns the package of a file: `proxy/call`, `proxy/extensions/mcp`, `tests`, `docs/evidence`."""
    parts = path.split("/")
    depth = {"proxy": 3 if parts[1:2] == ["extensions"] else 2, "docs": 2}.get(parts[0], 1)
    return "/".join(parts[:-1][:depth])


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def main() -> int:
    """Prints the findings."""
    words = sys.argv[1:]
    if words == ["--code"]:
        counts = count_code()
        for package, count in sorted(counts.items()):
            print(f"{count:6} {package}")
        print(f"{counts.total():6} in all")
        return 0
    paths = [
        path.resolve()
        for word in words[1:]
        for path in ([Path(word)] if word.endswith(".py") else sorted(Path(word).rglob("*.py")))
    ]
    findings = list(check_code(paths)) if words[:1] == ["--code"] else list(check_user_facing())
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
