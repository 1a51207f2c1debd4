"""The published meta-schemas of the drafts, from the package `jsonschema-specifications`.

The files are read without importing the package, and only when a schema is checked against one or refers to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from proxy.core.json.jsontext import parse
from proxy.core.model.values import JsonValue
from proxy.core.schema.drafts import Draft

META_SCHEMA: Final = {
    Draft.D4: "http://json-schema.org/draft-04/schema#",
    Draft.D6: "http://json-schema.org/draft-06/schema#",
    Draft.D7: "http://json-schema.org/draft-07/schema#",
    Draft.D2019: "https://json-schema.org/draft/2019-09/schema",
    Draft.D2020: "https://json-schema.org/draft/2020-12/schema",
}
_FOLDERS: Final = {
    Draft.D4: "draft4",
    Draft.D6: "draft6",
    Draft.D7: "draft7",
    Draft.D2019: "draft201909",
    Draft.D2020: "draft202012",
}


def load_documents(uri: str) -> Mapping[str, JsonValue]:
    """The documents, by URI, of the draft that publishes `uri` (without a fragment); none for an unknown URI."""
    for draft, published in META_SCHEMA.items():
        meta = published.rstrip("#")
        if uri == meta or uri.startswith(meta.removesuffix("schema") + "meta/"):
            return _documents(draft)
    return {}


@cache
def list_vocabularies(draft: Draft) -> Mapping[str, frozenset[str]]:
    """The vocabularies of a draft, by URI, each with its keywords."""
    return {
        uri.replace("/meta/", "/vocab/"): frozenset(document["properties"])
        for uri, document in _documents(draft).items()
        if "/meta/" in uri
    }


@cache
def _documents(draft: Draft) -> Mapping[str, JsonValue]:
    spec = find_spec("jsonschema_specifications")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("jsonschema-specifications is not installed; it comes with jsonschema")
    folder = Path(spec.origin).with_name("schemas") / _FOLDERS[draft]
    documents: list[JsonValue] = [parse(file.read_bytes()) for file in sorted(folder.rglob("*")) if file.is_file()]
    return {str(document.get("$id") or document["id"]).rstrip("#"): document for document in documents}
