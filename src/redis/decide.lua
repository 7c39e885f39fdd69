-- Decides the checks of one event that have one tag, in one step: what src/engine decides
-- for a local store, with the arithmetic of src/rate.
--
-- KEYS: the record of each check. Checks of one record have the same key.
-- ARGV[1]: 8 bytes, the number of the event.
-- ARGV[n + 1]: check n, in this layout:
--   u8 algorithm (1 = moving average, 2 = bucket, 3 = calendar window), u8 update (1 = leaky, 2 = strict,
--   3 = read-only), u8 total, u8 overridden (0, 1 = allow, 2 = deny),
--   f64 limit, f64 period, f64 leak (of a calendar window the second in which it begins by the
--   clock of the server that asks; the period is its length), f64 count, f64 the part of the limit from which it
--   refuses the event (NaN: it only observes), u32 size of a new filter (0: the check has
--   no unique event), u32 for how long a crossing blocks (see src/engine/block.rs), 8 * 8 bytes: the
--   hashes of the probes.
-- Returns one string for each check: see `reply`.
-- record.lua stands before this; in the script for shares, share.lua as well: see there.

local AVERAGE, BUCKET, CALENDAR = 1, 2, 3
local LEAKY, STRICT, READ_ONLY = 1, 2, 3
local ALLOW, DENY = 1, 2
local FILTER_MAX = 2000000
-- Times are whole microseconds.
local TIME_MAX = 2 ^ 53
local NO_EVENTS = string.rep('\0', 32)

local event = ARGV[1]

local function seconds(at)
  local whole = math.floor(at / 1000000)
  return whole + (at - whole * 1000000) / 1000000
end

-- The version of a record that this script does not know.
local later = nil

-- The record of `key`; nil if there is none, or something else.
local function read(key)
  local head = redis.pcall('GETRANGE', key, 0, HEAD - 1)
  if type(head) ~= 'string' then
    -- A list or the like. Any other error, such as a lack of permission, is raised.
    if string.sub(head.err, 1, 9) ~= 'WRONGTYPE' then redis.call('GETRANGE', key, 0, HEAD - 1) end
    return nil
  end
  if is_later(head) then later = string.byte(head) end
  if #head ~= HEAD or string.byte(head) ~= VERSION then return nil end
  local state = read_head(head)
  if state.limit ~= state.limit or not (state.rate >= 0 and math.abs(state.at) < TIME_MAX and state.limit >= 0 and state.period >= 0
    and state.filter_bytes <= FILTER_MAX) or redis.call('STRLEN', key) ~= HEAD + state.filter_bytes then
    return nil
  end
  return state
end

local function write_head(state)
  local flags = (state.has_rate and HAS_RATE or 0) + (state.calendar and IS_CALENDAR or 0)
  if state.calendar then
    return struct.pack(CALENDAR_LAYOUT, VERSION, flags, 0, state.rate, state.at, state.start,
      state.limit, state.period, state.over_since, state.last_over, state.crossings,
      state.filter_bytes, state.epoch, state.events)
  end
  return struct.pack(LAYOUT, VERSION, flags, 0, state.rate, state.at, state.limit, state.period,
    state.over_since, state.last_over, state.crossings, state.filter_bytes, state.epoch,
    state.events)
end

-- The number of a bit of a filter of this size, for SETBIT: the 64-bit hash times the
-- number of bits, divided by 2^64. Redis counts the bits of a byte from the highest.
local function bit_of(probes, number, bytes)
  local b1, b2, b3, b4, b5, b6, b7, b8 = string.byte(probes, number * 8 - 7, number * 8)
  local bits = bytes * 8
  local carry = math.floor((b1 + b2 * 256 + b3 * 65536) * bits / 16777216)
  carry = math.floor(((b4 + b5 * 256 + b6 * 65536) * bits + carry) / 16777216)
  local bit = math.floor(((b7 + b8 * 256) * bits + carry) / 65536)
  return HEAD * 8 + bit - bit % 8 + 7 - bit % 8
end

local function contains(key, probes, bytes)
  for number = 1, 8 do
    if redis.call('GETBIT', key, bit_of(probes, number, bytes)) == 0 then return false end
  end
  return true
end

local function insert(key, probes, bytes)
  for number = 1, 8 do
    redis.call('SETBIT', key, bit_of(probes, number, bytes), 1)
  end
end

local function is_over(check, rate, count)
  if check.algorithm == AVERAGE then return not (rate < check.limit) end
  if check.algorithm == CALENDAR then return not (rate <= check.limit) end
  --share if check.algorithm == SHARE then return not (rate < check.limit) end
  return not (rate <= check.limit) and not (rate <= count)
end

local function decide_over(measured, overridden)
  if overridden == 0 then return measured end
  return overridden == DENY
end

-- Whether the check refuses the event, as Decision::refuses of src/engine.
local function refuses(one)
  local from = one.check.refuses
  if from ~= from then return false end
  if one.overridden ~= 0 then return one.overridden == DENY end
  local part = math.huge
  if one.limit > 0 then part = one.rate / one.limit end
  if part ~= part or one.over and part < 1 then part = 1 end
  return part >= from and (one.over or from < 1)
end

-- As Average::next of src/rate.
local function average_next(record, period, count)
  local interval = now - seconds(record.at)
  if interval <= 0 then interval = 1e-9 end
  local x = interval / period
  local a = math.exp(-x)
  local rate = (1 - a) * count / x + a * record.rate
  if rate < count then return count end
  return rate
end

-- Moves the window of a check to that of the clock of Redis: as CalendarWindow::at of src/rate.
local function move(check, record)
  local start, period = check.leak, check.period
  if second >= start and second < start + period then return end
  if record and second >= record.start and second < record.start + record.period then
    check.leak, check.period = record.start, record.period
  else
    check.leak = second - (second - start) % math.max(period, 1)
  end
end

-- Of a calendar window: the record as the check finds it, without what was counted in a window
-- that is over, or in one that only a clock which was wrong can have been in, and without its
-- over decisions. As State::in_window of src/engine.
local function in_window(check, record)
  if not record then return nil end
  local later = check.leak - record.start
  local is_far = record.start - second > math.max(KEPT, record.period)
  if not (later > record.period - later or is_far) then return record end
  local state = {}
  for name, value in pairs(record) do state[name] = value end
  state.has_rate, state.over_since = false, 0
  if not block_end(state.last_over) then state.last_over = 0 end
  state.start, state.period = check.leak, check.period
  return state
end

-- Whether this event was counted in the record already: a reply was lost.
local function is_counted(record)
  if not record then return false end
  for first = 1, 25, 8 do
    if string.sub(record.events, first, first + 7) == event then return true end
  end
  return false
end

-- One that observes counts as a strict one; a total counts accepted events only.
local function effective_update(check)
  local observes = check.refuses ~= check.refuses
  if observes and check.update == LEAKY then return STRICT end
  if not observes and check.update == STRICT and check.total == 1 then return LEAKY end
  return check.update
end

-- The block of a record that denies the event of a check: as Check::block_in of src/engine.
local function block_in(check, record)
  local ends = record and block_end(record.last_over)
  if ends and ends > second and check.overridden == 0 and check.blocks > 0 then return record.last_over end
  return nil
end

-- The block that a crossing of a check sets, if it sets one.
local function begun(check)
  if check.blocks <= 1 then return nil end
  if check.blocks == NEVER then return NEVER end
  return BLOCKED + math.min(math.ceil((second + check.blocks) / 60), NEVER - BLOCKED - 1)
end

-- A leaky event that was counted was accepted.
local function accepted(one)
  if one.counted and one.update == LEAKY then one.over = decide_over(false, one.overridden) end
  one.refuses = refuses(one) and not (one.counted and one.update == LEAKY and one.overridden == 0)
  return one
end

local function compute(check, key, record)
  --share if check.algorithm == SHARE then check.least, check.filter_bytes = check.filter_bytes, 0 end
  local calendar = check.algorithm == CALENDAR
  if calendar then
    move(check, record)
    record = in_window(check, record)
  end
  local one = {
    key = key, record = record, update = check.update, limit = check.limit,
    period = check.period, start = check.leak, overridden = check.overridden, check = check, filter = 'keep', count = check.count,
    crossings = record and record.crossings or 0, found = record ~= nil and record.has_rate,
  }
  if calendar and record then one.period, one.start = record.period, record.start end
  one.update = effective_update(check)
  one.counted = check.update ~= READ_ONLY and is_counted(record)
  if one.counted then
    one.count = 0
  elseif check.filter_bytes > 0 and check.update ~= READ_ONLY then
    local live = record and record.filter_bytes > 0
    if live then
      if calendar then one.expired = record.epoch ~= record.start
      else one.expired = second > record.epoch + check.period end
      live = not one.expired
    end
    one.seen = live and contains(key, check.probes, record.filter_bytes) or false
    if one.seen then one.count = 0
    elseif live then one.filter = 'insert'
    else one.filter = 'renew' end
  end
  if one.found then one.kept_rate, one.kept_at = record.rate, record.at end
  --share if check.algorithm == SHARE then
  --share share(one, check, record)
  --share if one.only_looks then one.update = READ_ONLY end
  --share else
  if check.algorithm == AVERAGE then
    one.rate = one.found and average_next(record, check.period, one.count) or one.count
  elseif calendar then
    one.rate = (one.found and record.rate or 0) + one.count
  else
    local level = 0
    if one.found then
      local leaked = math.max(now - seconds(record.at), 0) * check.leak
      if leaked < record.rate then level = record.rate - leaked end
      if check.update == LEAKY then one.kept_rate, one.kept_at = level, now_micros end
    end
    one.rate = level + one.count
  end
  --share end
  one.measured = is_over(check, one.rate, one.count)
  one.blocked = block_in(check, record)
  if one.blocked then one.overridden = DENY end
  one.over = decide_over(one.measured, one.overridden)
  return accepted(one)
end

-- A later check of the same record: the rate of the first one against its own limit.
local function again(check, first, number)
  local one = {}
  for name, value in pairs(first) do one[name] = value end
  one.check, one.same_as, one.update, one.limit, one.overridden = check, number, check.update, check.limit, check.overridden
  one.update = effective_update(check)
  --share if one.sent then one.rate = share_rate(one.sent, one.failed, check.filter_bytes) end
  one.blocked = block_in(check, first.record)
  if one.blocked then one.overridden = DENY end
  one.over = decide_over(is_over(check, one.rate, one.count), one.overridden)
  return accepted(one)
end

local function is_over_decision(one)
  return one.over and one.update ~= READ_ONLY and one.overridden == 0
end

-- Completes a check, and writes its record. `refused`: a check of this event keeps leaky ones
-- from counting; `over`: a check of this record is.
local function settle(one, refused, over)
  local written = one.update == STRICT or one.update == LEAKY and not refused
  local state, record = {}, one.record
  if record then
    for name, value in pairs(record) do state[name] = value end
  else
    state = {
      has_rate = false, rate = 0, at = 0, limit = one.limit, period = one.period, over_since = 0,
      last_over = 0, crossings = 0, filter_bytes = 0, epoch = 0, events = NO_EVENTS,
    }
  end
  local calendar = one.check.algorithm == CALENDAR
  state.calendar, state.start = calendar, calendar and one.start or 0
  --share if one.sent then state.calendar, state.start, one.check.filter_bytes = true, one.check.least, BUCKET_BYTES end
  one.written = written or one.counted
  if one.counted then
    -- Nothing is written again.
    one.crossed = false
    return
  end
  if written then
    state.has_rate, state.rate, state.at = true, one.rate, now_micros
    state.limit, state.period = one.limit, one.period
    if not one.measured then state.over_since = 0
    elseif state.over_since == 0 then state.over_since = second end
    one.kept_rate, one.kept_at = one.rate, now_micros
    state.events = event .. string.sub(state.events, 1, 24)
  else
    if one.kept_rate then state.has_rate, state.rate, state.at = true, one.kept_rate, one.kept_at end
    one.filter = 'keep'
  end
  local bucket = one.check.algorithm == BUCKET
  local changed = written or bucket and one.update == LEAKY and state.has_rate
  if over then
    local this = math.min(math.max(second, 1), BLOCKED - 1)
    -- A block that has ended, or refuses nothing, is no over decision.
    local last = block_end(state.last_over) and 0 or state.last_over
    changed = changed or last ~= this
    state.last_over = this
    -- The first of a calendar window has none before.
    if last == 0 or this - last > one.period and not calendar then
      state.crossings = state.crossings + 1
      one.crossed = true
      local block = begun(one.check)
      if block then
        one.blocked, state.last_over = block, block
        -- Commands find records by their rates.
        if not state.has_rate then state.has_rate, state.rate, state.at = true, 0, now_micros end
      end
    end
    one.crossings = state.crossings
  end
  if not changed then return end
  local renew = one.filter == 'renew'
  if renew then state.filter_bytes, state.epoch = one.check.filter_bytes, calendar and state.start or second end
  local head = write_head(state)
  local lives = ttl(state, bucket)
  if state.filter_bytes > 0 and not renew then
    redis.call('SETRANGE', one.key, 0, head)
    redis.call('PEXPIRE', one.key, lives)
  else
    redis.call('SET', one.key, head .. string.rep('\0', state.filter_bytes), 'PX', lives)
  end
  --share if one.word then if one.filter ~= 'keep' then redis.call('SETRANGE', one.key, HEAD + one.place, one.word) end else
  if one.filter ~= 'keep' then insert(one.key, one.check.probes, state.filter_bytes) end
  --share end
end

-- In the layout of a decision in the protocol between library and agent: see src/cluster/wire.
local function reply(one)
  local outcome = 0
  local function add(set, bit) if set then outcome = outcome + bit end end
  add(one.over, 1)
  add(one.crossed, 2)
  add(one.overridden == ALLOW, 4)
  add(one.overridden == DENY, 8)
  add(one.found, 16)
  add(one.expired, 32)
  add(one.seen == false, 64)
  add(one.seen == true, 128)
  add(one.written, 256)
  add(one.kept_rate, 512)
  local calendar = one.check.algorithm == CALENDAR
  --share if one.sent then calendar, one.count, one.start, one.period = true, one.failed, one.from, one.sent end
  return struct.pack('<I4I4ddi8di8I4I4I4', outcome, one.crossings, one.rate, one.count, now_micros,
    one.kept_rate or 0, one.kept_at or 0, calendar and one.start or 0, calendar and one.period or 0,
    one.blocked or 0)
end

-- Computes all checks. Where another check has refused the event, totals are read-only.
local function compute_all(refused)
  local all = {}
  for number, key in ipairs(KEYS) do
    local argument = ARGV[number + 1]
    local check = {}
    check.algorithm, check.update, check.total, check.overridden, check.limit, check.period, check.leak,
      check.count, check.refuses, check.filter_bytes, check.blocks = struct.unpack('<BBBBdddddI4I4', argument)
    check.probes = string.sub(argument, 53)
    if refused and check.total == 1 then check.update, check.count = READ_ONLY, 0 end
    local first
    for earlier = 1, number - 1 do
      local one = all[earlier]
      if one.key == key and not one.same_as and one.update ~= READ_ONLY then
        first = earlier
        break
      end
    end
    if first then
      all[number] = again(check, all[first], first)
    else
      all[number] = compute(check, key, read(key))
    end
  end
  return all
end

local all = compute_all(false)
-- Nothing is written, and the server that asks decides alone.
if later then return redis.error_reply('ERR record is of format version ' .. later) end
local totals, refused_by_own = false, false
for _, one in ipairs(all) do
  if one.check.total == 1 then totals = true
  elseif one.refuses then refused_by_own = true end
end
if totals and refused_by_own then all = compute_all(true) end

local refused = false
for _, one in ipairs(all) do
  if one.update ~= STRICT and one.refuses then refused = true end
end
-- Checks of one record share one change: the event is counted if any of them counts it, and
-- the record is over its limit if any of them is.
for number, one in ipairs(all) do
  if not one.same_as then
    local over, update = is_over_decision(one), one.update
    local others = {}
    for _, other in ipairs(all) do
      if other.same_as == number then
        others[#others + 1] = other
        if other.update == STRICT then one.update = STRICT end
        over = over or is_over_decision(other)
      end
    end
    settle(one, refused, over)
    local crossed = one.crossed
    one.crossed = crossed and is_over_decision(one)
    for _, other in ipairs(others) do
      other.written, other.crossings = one.written, one.crossings
      other.kept_rate, other.kept_at = one.kept_rate, one.kept_at
      other.crossed = crossed and is_over_decision(other)
      if crossed then other.blocked = other.blocked or one.blocked end
    end
  end
end
local replies = {}
for number, one in ipairs(all) do replies[number] = reply(one) end
return replies
