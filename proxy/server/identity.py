"""Time, chance and names as this process has them: the system's clock, fresh request ids, its pseudonym as a hop."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
import uuid
from typing import Final

_chance: Final = random.Random()  # noqa: S311 - of request ids alone
if hasattr(os, "register_at_fork"):  # else two processes of one parent would give the same ids
    os.register_at_fork(after_in_child=_chance.seed)
random_bits: Final = _chance.getrandbits  # so many of them, for the ids of traces


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


def make_id() -> str:
    """A new request id: a UUID of version 7 (RFC 9562 section 5.7), which sorts by time, with milliseconds since the
    epoch and 74 random bits. It guards nothing, so its chance need not be the kernel's, which costs a system call."""
    milliseconds, choose = time.time_ns() // 1_000_000, _chance.getrandbits
    return "%08x-%04x-7%03x-%04x-%012x" % (  # noqa: UP031 - quicker than an f-string with five formats
        milliseconds >> 16 & 0xFFFFFFFF,
        milliseconds & 0xFFFF,
        choose(12),
        0x8000 | choose(14),
        choose(48),
    )


def make_pseudonym(name: str) -> str:
    """How this process signs in `Via` (RFC 9110 section 7.6.3): tells it from others of its kind in the same chain."""
    return f"{name}-{secrets.token_hex(4)}"
