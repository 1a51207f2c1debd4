"""The corrections that the calls of one tool may get: the policy key `correct`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Protocol

from proxy.core.model.value_class import value_class
from proxy.extensions.correction.core.words import Layer

POLICY_KEY: Final = "correct"


class Scope(StrEnum):
    """The scope of a correction: the places that the failure names (any, where it names none), or everything."""

    FAILING = "failing"
    ANY = "any"


@value_class
class CorrectionPolicy:
    """Which corrections one tool's calls may get. `max_attempts`: questions per layer and call.

    `trajectory`: the user's wish and the results of earlier calls are remembered, and layer 4 gets them.
    `independent_steps`: layer 4 is asked also where no earlier result is known. `scope`: None leaves each layer its own
    (`scope_of`).
    """

    validation_feedback: bool = False
    semantic_retry: bool = False
    max_attempts: int = 2
    trajectory: bool = False
    independent_steps: bool = True
    scope: Scope | None = None

    def wants(self, layer: Layer) -> bool:
        """Whether a layer is switched on."""
        return self.validation_feedback if layer is Layer.VALIDATION_FEEDBACK else self.semantic_retry

    def scope_of(self, layer: Layer) -> Scope:
        """The scope of a layer's answer. Layer 4 reasons over the whole conversation, so it may touch anything."""
        return self.scope or (Scope.FAILING if layer is Layer.VALIDATION_FEEDBACK else Scope.ANY)

    @property
    def on(self) -> bool:
        """Whether anything is switched on."""
        return self.validation_feedback or self.semantic_retry


class _HasAdded(Protocol):
    @property
    def added(self) -> Mapping[str, Any]:
        """The values of the extensions' keys, by key."""


_OFF: Final = CorrectionPolicy()


def find_policy(policy: _HasAdded) -> CorrectionPolicy:
    """The corrections that a policy allows; by default everything is off."""
    found: CorrectionPolicy = policy.added.get(POLICY_KEY, _OFF)
    return found
