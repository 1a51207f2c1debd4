"""The store's operations as Lua scripts: each runs as one, on one key, and sets a time to live on what it writes.

An episode is a hash: `n` failed attempts, `r` repetitions, and for the last of them `d<number>` (digest) and
`a<number>` (digest and lines, opaque here). What a failure does to it is `core.contract.add`, written once more below
because it must happen where the data is; `tests/state/test_scripts.py` holds the two against each other.

Numbers arrive as text; times are milliseconds. A script that finds nothing gives false, which a client sees as nil.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Script:
    """Lua text and its SHA-1, the name under which a server keeps it (EVALSHA)."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


# Adds one attempt unless its digest is among those kept. Shared by FAIL and MERGE.
_ADD = """
local function add(key, digest, attempt, kept_attempts, kept_digests)
  local n = tonumber(redis.call('HGET', key, 'n') or 0)
  for i = math.max(1, n - kept_digests + 1), n do
    if redis.call('HGET', key, 'd' .. i) == digest then return true end
  end
  n = n + 1
  redis.call('HSET', key, 'n', n, 'd' .. n, digest, 'a' .. n, attempt)
  redis.call('HDEL', key, 'd' .. (n - kept_digests), 'a' .. (n - kept_attempts))
  return false
end
"""

# -> the hash as a flat list, and its remaining time to live
LOOK = Script(
    """
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
return {redis.call('HGETALL', KEYS[1]), redis.call('PTTL', KEYS[1])}
"""
)

# digest, attempt, ttl, kept attempts, kept digests -> 1 where repeated, and the hash
FAIL = Script(
    _ADD
    + """
local repeated = add(KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5]))
if repeated then redis.call('HINCRBY', KEYS[1], 'r', 1) end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {repeated and 1 or 0, redis.call('HGETALL', KEYS[1])}
"""
)

# -> what the hash was
CLEAR = Script(
    """
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
local was = redis.call('HGETALL', KEYS[1])
redis.call('DEL', KEYS[1])
return was
"""
)

# 1 where it was ended first, repetitions, ttl, kept attempts, kept digests, then digest and attempt of each
MERGE = Script(
    _ADD
    + """
if ARGV[1] == '1' then redis.call('DEL', KEYS[1]) end
for i = 6, #ARGV, 2 do add(KEYS[1], ARGV[i], ARGV[i + 1], tonumber(ARGV[4]), tonumber(ARGV[5])) end
if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('HINCRBY', KEYS[1], 'r', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], math.max(tonumber(ARGV[3]), redis.call('PTTL', KEYS[1])))
end
return 1
"""
)

# limit, ttl -> slots now used
RESERVE = Script(
    """
local used = tonumber(redis.call('GET', KEYS[1]) or 0)
if used >= tonumber(ARGV[1]) then return false end
redis.call('SET', KEYS[1], used + 1, 'PX', ARGV[2])
return used + 1
"""
)

# -> slots still used; the count's time runs on
RELEASE = Script(
    """
local used = tonumber(redis.call('GET', KEYS[1]) or 0)
if used > 1 then return redis.call('DECR', KEYS[1]) end
redis.call('DEL', KEYS[1])
return 0
"""
)

# -> slots used
TAKEN = Script("return tonumber(redis.call('GET', KEYS[1]) or 0)")

# change, ttl (0: the count's time runs on)
MERGE_USED = Script(
    """
local used = tonumber(redis.call('GET', KEYS[1]) or 0) + tonumber(ARGV[1])
local ttl = math.max(tonumber(ARGV[2]), redis.call('PTTL', KEYS[1]))
if used > 0 and ttl > 0 then redis.call('SET', KEYS[1], used, 'PX', ttl) else redis.call('DEL', KEYS[1]) end
return 1
"""
)

# ttl
MARK = Script("redis.call('SET', KEYS[1], 1, 'PX', ARGV[1]) return 1")

# -> the remaining time to live, negative where there is none
MARKED = Script("return redis.call('PTTL', KEYS[1])")
