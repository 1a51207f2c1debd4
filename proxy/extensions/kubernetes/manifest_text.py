"""Reads and writes manifests as a stream of YAML or JSON documents; an unchanged document keeps its bytes.

Kubernetes reads YAML 1.1 (`yes` is true), so this file reads and writes that, and not the YAML 1.2 of the config. A
changed document is written again: it keeps its values and the order of its keys, and loses its comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import yaml

from proxy.core.model.value_class import value_class
from proxy.extensions.kubernetes.sidecar import Manifest
from proxy.extensions.kubernetes.workloads import InjectionError, Path

_SEPARATOR: Final = re.compile(r"^---(?=[ \t\r\n]|$)[^\n]*\n?", re.MULTILINE)
_LISTS: Final = ("List", "ResourceList")


@value_class
class ManifestDocument:
    """One document of a stream: its text, its value (None for an empty one), and where it begins: the file's name and
    the number of lines before it."""

    text: str
    value: Any
    file: str = ""
    lines_before: int = 0

    @property
    def manifests(self) -> list[Manifest]:
        """The manifests in it: itself, or the items of a list."""
        if not isinstance(self.value, dict):
            return []
        if self.value.get("kind") in _LISTS:
            return [each for each in self.value.get("items") or [] if isinstance(each, dict)]
        return [self.value]


def read_documents(text: str, file: str = "<stdin>") -> list[ManifestDocument]:
    """The documents of a stream; `file` is its name in messages. Raises InjectionError if it is not YAML."""
    try:
        return [
            ManifestDocument(part, yaml.load(part, Loader=_Loader), file, lines)  # noqa: S506 - a safe one
            for part, lines in _split(text)
        ]
    except yaml.YAMLError as error:
        raise InjectionError(f"{file}: the manifests are not YAML: {error}") from None


def _split(text: str) -> Iterator[tuple[str, int]]:
    """The text of each document, without the lines that separate them, and the number of lines before it. Block text
    cannot hold such a line."""
    starts = [(0, 0), *((found.start(), found.end()) for found in _SEPARATOR.finditer(text)), (len(text), len(text))]
    for number, ((_, begin), (end, _)) in enumerate(pairwise(starts)):
        if text[begin:end].strip() or (number and number < len(starts) - 2):
            yield text[begin:end], text.count("\n", 0, begin)


def find_line(documents: list[ManifestDocument], index: int, path: Path) -> str:
    """The place of a value as `file:line`: of the manifest with that number, at that path in it; of the nearest value
    around it if there is none."""
    for document in documents:
        count = len(document.manifests)
        if index >= count:
            index -= count
            continue
        inner = ("items", index) if document.value.get("kind") in _LISTS else ()
        node = yaml.compose(document.text, Loader=_Loader)
        line = 0 if node is None else _find_mark(node, (*inner, *path))
        return f"{document.file}:{document.lines_before + line + 1}"
    raise AssertionError("every manifest is in a document")


def _find_mark(node: yaml.Node, path: Path) -> int:
    """The line, from 0, of the value at a path: that of its key in a mapping."""
    line = node.start_mark.line
    for step in path:
        if isinstance(node, yaml.MappingNode):
            found = next((pair for pair in node.value if pair[0].value == step), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            found = (node.value[step], node.value[step])
        else:
            found = None
        if found is None:
            break
        line, node = found[0].start_mark.line, found[1]
    return int(line)


def write_documents(before: list[ManifestDocument], after: list[Manifest], added: list[Manifest]) -> str:
    """The stream with its manifests replaced, in order, by `after`, and with `added` at its end."""
    left, made = iter(after), list[str]()
    for document in before:
        count = len(document.manifests)
        changed = [next(left) for _ in range(count)]
        made.append(document.text if changed == document.manifests else _write(_exchange(document, changed)))
    if before and isinstance(before[0].value, dict) and before[0].value.get("kind") in _LISTS and len(before) == 1:
        whole = _exchange(before[0], [*after, *added])
        return before[0].text if whole == before[0].value else _write(whole)
    made += [_write(manifest) for manifest in added]
    return "---\n".join(part if part.endswith("\n") else f"{part}\n" for part in made if part.strip())


def write_in_order(documents: list[ManifestDocument], manifests: list[tuple[int, Manifest]]) -> str:
    """The manifests in their order, each with its number in the stream; one that is unchanged keeps its text."""
    if len(documents) == 1 and isinstance(documents[0].value, dict) and documents[0].value.get("kind") in _LISTS:
        return _write({**documents[0].value, "items": [manifest for _, manifest in manifests]})
    places = [(document, each) for document in documents for each in document.manifests]
    made = []
    for index, manifest in manifests:
        document, before = places[index]
        made.append(document.text if manifest == before and before is document.value else _write(manifest))
    return "---\n".join(part if part.endswith("\n") else f"{part}\n" for part in made)


def _exchange(document: ManifestDocument, changed: list[Manifest]) -> Manifest:
    if document.value.get("kind") in _LISTS:
        return {**document.value, "items": changed}
    return changed[0]


class _Loader(yaml.SafeLoader):
    """Reads dates as text: manifests hold no dates."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as block text, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the library's signature
        """True for all values: not every reader of manifests knows anchors."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text and not re.search(r"[ \t]\n", text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _write(value: Manifest) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
