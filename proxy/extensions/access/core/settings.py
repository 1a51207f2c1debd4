"""What the keys of `access` say, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """The section `access`."""


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """Which issuers' tokens a route takes."""
