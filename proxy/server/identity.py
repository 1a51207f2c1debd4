"""Time and chance as this process has them."""

from __future__ import annotations

import asyncio
import random
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
