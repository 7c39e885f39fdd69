-- The record of a key, for the scripts of this directory.
--
-- A record is a string: a header of 92 bytes, then the bits of its filter.
--   u8 version, u8 flags (1 = it has a rate, 2 = it counts in a calendar window), u16 zero, f64 rate, f64 its time in
--   microseconds since 1970, f64 limit, f64 period, u32 over since, u32 last over,
--   u32 crossings, u32 size of the filter, f64 the second in which the filter was started,
--   4 * 8 bytes: the numbers of the latest events.
-- In place of the limit, a calendar window has u32 the second in which it began, and f32 the
-- limit; its length is the period. In place of the second of the latest over decision there may be
-- a block: see src/engine/block.rs.

local VERSION, HEAD, HAS_RATE, IS_CALENDAR = 1, 92, 1, 2
local LAYOUT = '<BBI2ddddI4I4I4I4dc32'
local CALENDAR_LAYOUT = '<BBI2ddI4fdI4I4I4I4dc32'
-- What all versions begin with, so that an agent which does not know one of them leaves the
-- record alone: u8 version, u8 flags, u16 zero. What begins otherwise is no record.
local function is_later(head)
  return #head >= 4 and string.byte(head) > VERSION and string.sub(head, 3, 4) == '\0\0'
end
-- A rate below this vanishes when an event is added to it: see src/rate/forget.rs.
local VANISHES = 2.220446049250313e-16 / 8
-- No key lives longer: ten years, in seconds.
local TTL_MAX = 315360000
-- A window of the calendar is kept for so long after its end: a day later, no window of any
-- zone is this one.
local KEPT = 86400
-- A share is flagged as a calendar window that began before this second: see share.lua.
--share local SHARE_MAX = 100000000

-- A block, and one without an end.
local BLOCKED, NEVER = 0xF0000000, 0xFFFFFFFF

-- The second in which the block ends that a record with this over decision holds; nil if it holds none.
local function block_end(last_over)
  if last_over < BLOCKED then return nil end
  if last_over == NEVER then return math.huge end
  return (last_over - BLOCKED) * 60
end

local time = redis.call('TIME')
local second, micros = tonumber(time[1]), tonumber(time[2])
local now, now_micros = second + micros / 1000000, second * 1000000 + micros

local function read_head(head)
  local calendar, start = string.byte(head, 2) >= IS_CALENDAR, 0
  local flags, _, rate, at, limit, period, over_since, last_over, crossings, bytes, epoch, events
  if calendar then
    _, flags, _, rate, at, start, limit, period, over_since, last_over, crossings, bytes, epoch, events =
      struct.unpack(CALENDAR_LAYOUT, head)
  else
    _, flags, _, rate, at, limit, period, over_since, last_over, crossings, bytes, epoch, events =
      struct.unpack(LAYOUT, head)
  end
  return {
    calendar = calendar, start = start, has_rate = flags % 2 == HAS_RATE, rate = rate, at = at, limit = limit, period = period,
    over_since = over_since, last_over = last_over, crossings = crossings,
    filter_bytes = bytes, epoch = epoch, events = events,
  }
end

-- How many milliseconds a record can still change a decision.
local function ttl(state, bucket)
  local longest = state.period
  if state.calendar then longest = math.max(state.start + state.period + KEPT - now, 1) end
  --share if state.calendar and state.start < SHARE_MAX then longest = state.period + 25 end
  if state.has_rate and state.rate > 0 and not state.calendar then
    if bucket then
      longest = math.max(longest, state.rate * state.period / state.limit)
    else
      longest = math.max(longest, math.log(state.rate / VANISHES) * state.period)
      if state.limit > 0 then
        longest = math.max(longest, math.log(state.rate / state.limit) * state.period)
      end
    end
  end
  if state.filter_bytes > 0 and not state.calendar then longest = math.max(longest, state.epoch + state.period - now) end
  local over_until = block_end(state.last_over) or state.last_over + state.period
  if state.last_over > 0 then longest = math.max(longest, over_until - now) end
  if not (longest < TTL_MAX) then longest = TTL_MAX end
  return math.ceil(longest * 1000) + 1000
end

