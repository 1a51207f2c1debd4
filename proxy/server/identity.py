"""Time, chance and names as this process has them: the system's clock, its pseudonym as a hop."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
import uuid


class SystemClock:
    """Implements `Clock` over the system's clocks."""

    # The functions themselves: a call asks a dozen times.
    now = staticmethod(time.monotonic)  # seconds on the monotonic clock
    wall = staticmethod(time.time)  # seconds since the Unix epoch


class SystemPacing:
    """Implements `Pacing` over the event loop and the system's source of chance."""

    async def sleep(self, seconds: float) -> None:
        """Waits."""
        await asyncio.sleep(seconds)

    chance = staticmethod(random.random)  # at least 0 and below 1

    def fresh_key(self) -> str:
        """A value for an idempotency key: 128 random bits (RFC 9562 section 5.4 makes them a UUID)."""
        return str(uuid.uuid4())


def make_pseudonym(name: str) -> str:
    """How this process signs in `Via` (RFC 9110 section 7.6.3): tells it from others of its kind in the same chain."""
    return f"{name}-{secrets.token_hex(4)}"
