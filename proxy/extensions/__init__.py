"""The extensions: products of their own, each in one folder beside this file, joined to the main job by its row here.

A row names what its extension adds, and the places in it that the main job calls, written `module:name` below this
package. A module is imported when a verb, a config key, a route or a page first needs it; a plain `serve` imports none.
Nothing else names a module of an extension (tests/test_architecture.py), so a folder can be taken away
(tests/extensions/test_locks.py). Its row then still says to which extension a verb or a config key belongs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Extension:
    """One row: the folder's `name`, what the extension `adds` in one sentence, and the other extensions that it `uses`.

    `verbs`: verb -> a module with `register(subparsers)` and `run(args) -> exit code`, as in `proxy/cli/`.
    """

    name: str
    adds: str
    uses: tuple[str, ...] = ()
    verbs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_installed(self) -> bool:
        """Whether the extension's folder is there."""
        return _has_folder(self.name)


EXTENSIONS: Final = (
    Extension(
        "kubernetes",
        adds="the sidecar in Kubernetes manifests: `inject`",
        verbs={"inject": "kubernetes.cli.inject"},
    ),
)


def load(place: str) -> Any:
    """Imports what a row names: a module, or `module:name` in one."""
    module, _, name = place.partition(":")
    found = import_module(f"{__name__}.{module}")
    return getattr(found, name) if name else found


def find_verb(verb: str) -> Extension | None:
    """The extension that a verb belongs to, installed or not."""
    return next((row for row in EXTENSIONS if verb in row.verbs), None)


@cache
def _has_folder(name: str) -> bool:
    spec = find_spec(f"{__name__}.{name}")
    return spec is not None and spec.origin is not None  # a folder of compiled leftovers alone has no origin
