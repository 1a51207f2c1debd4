"""Reads and writes manifests as a stream of YAML or JSON documents; an unchanged document keeps its bytes.

Kubernetes reads YAML 1.1 (`yes` is true), so this file reads and writes that, and not the YAML 1.2 of the config. A
changed document is written anew: it keeps its values and the order of its keys, and loses its comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from proxy.extensions.kubernetes.injection import InjectionError, Manifest

_SEPARATOR: Final = re.compile(r"^---(?=[ \t\r\n]|$)[^\n]*\n?", re.MULTILINE)
_LISTS: Final = ("List", "ResourceList")


@dataclass(frozen=True, slots=True)
class ManifestDocument:
    """One document of a stream: its text, and its value (None for an empty one)."""

    text: str
    value: Any

    @property
    def manifests(self) -> list[Manifest]:
        """The manifests in it: itself, or the items of a list."""
        if not isinstance(self.value, dict):
            return []
        if self.value.get("kind") in _LISTS:
            return [each for each in self.value.get("items") or [] if isinstance(each, dict)]
        return [self.value]


def read_documents(text: str) -> list[ManifestDocument]:
    """The documents of a stream. Raises InjectionError where it is not YAML."""
    try:
        return [ManifestDocument(part, yaml.load(part, Loader=_Loader)) for part in _split(text)]  # noqa: S506 - a safe one
    except yaml.YAMLError as error:
        raise InjectionError(f"the manifests are not YAML: {error}") from None


def _split(text: str) -> Iterator[str]:
    """The text of each document, without the lines that separate them. Block text cannot hold such a line."""
    parts = _SEPARATOR.split(text)
    for index, part in enumerate(parts):
        if part.strip() or (index and index < len(parts) - 1):
            yield part


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
