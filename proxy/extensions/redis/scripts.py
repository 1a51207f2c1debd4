"""The store's operations as Lua scripts: each runs atomically, on one key or on keys of one slot, and sets a time to
live on what it writes.

An episode is a hash. `n` counts attempts, `f` failed calls; the last of them have `a<number of the call>` (attempt,
digest, call and lines, with spaces between). `d` holds the latest refused arguments (`<digest>:<times>`, with spaces
between, the latest last). A failure changes it as `core.contract.attempts.add` does. The rule is repeated below in Lua,
because it must run next to the data; `tests/extensions/redis/test_scripts.py` compares the two.

Numbers arrive as text; times are milliseconds. A script without a result gives false, which a client sees as nil.
"""

from __future__ import annotations

import hashlib
from dataclasses import field

from proxy.core.model.value_class import set_later, value_class


@value_class
class Script:
    """Lua text and its SHA-1, by which a server caches it (EVALSHA)."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        set_later(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


# `add` adds one failed call; it gives the call's attempt, whether its arguments were refused before, and whether the
# call was a client's resend. `clear` ends an episode and keeps the counts of refused arguments. FAIL, CLEAR and MERGE
# share both.
_RULES = """
local function add(key, kept_attempts, kept_digests, digest, call, seen, lines)
  local n = tonumber(redis.call('HGET', key, 'n') or 0)
  local f = tonumber(redis.call('HGET', key, 'f') or 0)
  local times, others = 0, {}
  for known, often in string.gmatch(redis.call('HGET', key, 'd') or '', '(%S+):(%d+)') do
    if known == digest then times = tonumber(often) else table.insert(others, known .. ':' .. often) end
  end
  local joins, twin = seen >= 0 and n > seen, false
  for i = math.max(1, f - kept_attempts + 1), f do
    local number, known, id = string.match(redis.call('HGET', key, 'a' .. i) or '', '^(%d+) (%S+) (%S+) ')
    if known == digest then
      if call ~= '-' and id == call then return {math.max(tonumber(number), times), times > 1, true} end
      if joins and tonumber(number) == n then twin = true end
    end
  end
  if not joins then n = n + 1 end
  local now = math.max(1, twin and times or times + 1)
  f = f + 1
  table.insert(others, digest .. ':' .. now)
  while #others > kept_digests do table.remove(others, 1) end
  redis.call('HSET', key, 'n', n, 'f', f, 'd', table.concat(others, ' '))
  redis.call('HSET', key, 'a' .. f, n .. ' ' .. digest .. ' ' .. call .. ' ' .. lines)
  redis.call('HDEL', key, 'a' .. (f - kept_attempts))
  return {math.max(n, now), times > 0 and not twin, false}
end

local function clear(key)
  local digests, ttl = redis.call('HGET', key, 'd'), redis.call('PTTL', key)
  redis.call('DEL', key)
  if digests and ttl > 0 then
    redis.call('HSET', key, 'd', digests)
    redis.call('PEXPIRE', key, ttl)
  end
end
"""

# -> the hash as a flat list, and its remaining time to live
LOOK = Script(
    """
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
return {redis.call('HGETALL', KEYS[1]), redis.call('PTTL', KEYS[1])}
"""
)

# ttl, kept attempts, kept digests, then digest, call, seen and lines -> the attempt, 1 where repeated, the hash, and 1
# where it was a client's resend
FAIL = Script(
    _RULES
    + """
local done = add(KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {done[1], done[2] and 1 or 0, redis.call('HGETALL', KEYS[1]), done[3] and 1 or 0}
"""
)

# 1 to forget the refused arguments too -> the former hash
CLEAR = Script(
    _RULES
    + """
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
local was = redis.call('HGETALL', KEYS[1])
if ARGV[1] == '1' then redis.call('DEL', KEYS[1]) else clear(KEYS[1]) end
return was
"""
)

# 1 if it was ended first, ttl, kept attempts, kept digests, then digest, call, seen and lines of each failed call
MERGE = Script(
    _RULES
    + """
if ARGV[1] == '1' then clear(KEYS[1]) end
for i = 5, #ARGV, 4 do
  add(KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3])
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('PEXPIRE', KEYS[1], math.max(tonumber(ARGV[2]), redis.call('PTTL', KEYS[1])))
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

# -> slots still used; the count keeps its time to live
RELEASE = Script(
    """
local used = tonumber(redis.call('GET', KEYS[1]) or 0)
if used > 1 then return redis.call('DECR', KEYS[1]) end
redis.call('DEL', KEYS[1])
return 0
"""
)

# -> slots used, and the count's remaining time to live, negative without a time
TAKEN = Script("return {tonumber(redis.call('GET', KEYS[1]) or 0), redis.call('PTTL', KEYS[1])}")

# change, ttl (0 keeps the count's time to live)
MERGE_USED = Script(
    """
local used = tonumber(redis.call('GET', KEYS[1]) or 0) + tonumber(ARGV[1])
local ttl = math.max(tonumber(ARGV[2]), redis.call('PTTL', KEYS[1]))
if used > 0 and ttl > 0 then redis.call('SET', KEYS[1], used, 'PX', ttl) else redis.call('DEL', KEYS[1]) end
return 1
"""
)

# `take` is the rule of `state/memory.py`. From a time, and interval and burst of each key, it returns the key (from 1)
# with the longest wait and that wait in microseconds, or false.
TAKE_RULE = """
local function take(now, numbers)
  local which, worst, after = 0, 0, {}
  for i, key in ipairs(KEYS) do
    local interval, burst = tonumber(numbers[2 * i - 1]), tonumber(numbers[2 * i])
    local begun = tonumber(redis.call('GET', key) or now)
    if begun > now + interval * burst then begun = now else begun = math.max(begun, now) end
    after[i] = begun + interval
    local wait = after[i] - interval * burst - now
    if wait > worst then which, worst = i, wait end
  end
  if which > 0 then return {which, worst} end
  for i, key in ipairs(KEYS) do
    redis.call('SET', key, string.format('%.0f', after[i]), 'PX', math.max(1, math.ceil((after[i] - now) / 1000)))
  end
  return false
end
"""

# interval and burst of each key, by the server's clock
TAKE_RATES = Script(
    TAKE_RULE
    + """
local time = redis.call('TIME')
return take(tonumber(time[1]) * 1000000 + tonumber(time[2]), ARGV)
"""
)

# ttl
PROBE = Script("redis.call('SET', KEYS[1], 1, 'PX', ARGV[1]) return 1")
