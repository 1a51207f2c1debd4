"""The number of generated examples that a property test tries: all of them on CI, a quarter at the desk.

CI is where `CI=true` is set, as it is for tests that need a real Redis or a real client library.
"""

from __future__ import annotations

import os
from typing import Final

ALL: Final = os.environ.get("CI") == "true"


def examples(number: int) -> int:
    """`number` on CI; elsewhere a quarter of it, and at least 20."""
    return number if ALL else max(min(number, 20), number // 4)
