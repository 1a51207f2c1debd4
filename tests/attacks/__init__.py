"""Fuzzers against the tree as it is, each with a seed and a bound: `make attack`.

An attack makes hostile input from a seed, hands it to the proxy or one of its parts, and holds what comes of it against
somebody else's reading. It gives what was found, one line each; nothing found is what is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Found:
    """The number of an attack's tries, the number of those that reached the validation, and the findings."""

    tries: int = 0
    through: int = 0
    findings: list[str] = field(default_factory=list)

    def add(self, what: str, sent: object) -> None:
        """Notes a finding, with the input that shows it."""
        self.findings.append(f"{what}: {sent!r}"[:2000])
