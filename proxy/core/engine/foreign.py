"""The engine for schemas that generated code cannot express (`graph.unwritable`): jsonschema-rs judges them whole.

It offers what `Program` offers, an entry for each node, so that `Check` need not know which of the two it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from proxy.core.engine.judge import whole_judge
from proxy.core.engine.runtime import BrokenKeyword
from proxy.core.jsontext import plain
from proxy.core.model import JsonValue
from proxy.core.schema import ROOT_URI, Draft, Node, Schemas

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator


class Foreign:
    """Validators of one schema and of the nodes that were asked for. Raises SchemaError where it does not compile."""

    def __init__(self, schemas: Schemas, reason: str, *, formats: bool, linear: bool) -> None:
        self.reason = reason
        self._schemas = schemas
        self._formats = formats
        self._linear = linear
        self._validators: dict[Node, Validator] = {}
        self._validator(schemas.root)

    def entry(self, kind: str, node: Node) -> Callable[[JsonValue], Any]:
        """The function `A` (value -> bool) or `R` (value -> broken keywords) of a node."""
        validator = self._validator(node)
        if kind == "A":
            return lambda value: validator.is_valid(plain(value))
        return lambda value: [_broken(node, error) for error in validator.iter_errors(plain(value))]

    def source(self) -> str:
        """There is none: says why."""
        return f"# no generated code: {self.reason}; jsonschema-rs judges this schema\n"

    def _validator(self, node: Node) -> Validator:
        validator = self._validators.get(node)
        if validator is None:
            schemas = self._schemas
            schema = schemas.documents[schemas.base] if node is schemas.root else {"$ref": node.uri}
            draft: Draft = schemas.draft if node is schemas.root else node.draft
            validator = self._validators[node] = whole_judge(
                schema,
                schemas,
                draft,
                formats=self._formats,
                linear=self._linear,
                base=schemas.base if node is schemas.root else ROOT_URI + "#part",
            )
        return validator


def _broken(root: Node, error: ValidationError) -> BrokenKeyword:
    from jsonschema_rs import ValidationErrorKind

    kind = error.kind
    *steps, keyword = error.evaluation_path or ["false"]
    if isinstance(kind, ValidationErrorKind.FalseSchema):
        steps, keyword = list(error.evaluation_path), "false"
    detail = getattr(kind, "property", None) or getattr(kind, "unexpected", None)
    context = getattr(kind, "context", None) or ()
    return BrokenKeyword(
        str(keyword),
        tuple(error.instance_path),
        _follow(root, steps),
        detail,
        tuple(tuple(_broken(root, inner) for inner in branch) for branch in context),
    )


def _follow(node: Node, steps: list[str | int]) -> Node:
    """The node at the end of an evaluation path, through references; as far as it can be told without running it."""
    pending: tuple[str | int, ...] = ()
    for step in steps:
        try:
            target = node.descend(pending).reference if step in ("$ref", "$dynamicRef", "$recursiveRef") else None
        except (LookupError, TypeError, ValueError):
            return node
        if target is not None:
            node, pending = target, ()
        else:
            pending = (*pending, step)
    try:
        return node.descend(pending)
    except (LookupError, TypeError, ValueError):
        return node
