"""How verbs with `--format json` say that their config or input cannot be used."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from proxy.cli.check_formats import show_mistake

if TYPE_CHECKING:
    from proxy.config.mistakes import Mistake


def print_unusable(form: str, message: str, mistakes: Iterable[Mistake] = ()) -> int:
    """Prints why nothing can be done and gives the exit code: `message` to stderr, or for the format `json` an object
    with it and the mistakes of the config to stdout."""
    if form == "json":
        told = {"message": message, "mistakes": [show_mistake(mistake) for mistake in mistakes]}
        print(json.dumps({"error": told}, ensure_ascii=False))
    else:
        print(message, file=sys.stderr)
    return 2
