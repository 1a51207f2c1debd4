"""The number of generated examples that a property test tries: all of them on CI, a quarter at the desk.

CI is where `CI=true` is set, as it is for tests that need a real Redis or a real client library.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, TypeVar

Case = TypeVar("Case")

ALL: Final = os.environ.get("CI") == "true"


def examples(number: int) -> int:
    """`number` on CI; elsewhere a quarter of it, and at least 20."""
    return number if ALL else max(min(number, 20), number // 4)


def sample(cases: Sequence[Case]) -> Sequence[Case]:
    """All cases on CI; elsewhere every fourth, from the first on."""
    return cases if ALL else cases[::4]
