-- The share of what went out that has failed, in percent: what src/rate/share.rs computes. This stands
-- between record.lua and decide.lua, in the script for checks of shares alone, in which the lines
-- that begin with the mark of it count as well.
--
-- Of such a check, `leak` is the second in which the message that has failed was accepted, 0 of what goes
-- out, and the size of a new filter is how many must have gone out. In its record the buckets are where others have
-- a filter, and how many must have gone out where a calendar window has its second.

local SHARE, BUCKETS, BUCKET_BYTES, MOST = 4, 24, 192, 16777215

local function share_rate(sent, failed, least)
  if sent == 0 or sent < least then return 0 end
  return failed * 100 / sent
end

local function share(one, check, record)
  local length = math.max(math.ceil(check.period / BUCKETS), 1)
  local lasts, bits = length * BUCKETS, ''
  if record and record.filter_bytes == BUCKET_BYTES then
    one.filter = 'insert'
    if not record.has_rate or second - math.floor(record.at / 1000000) <= lasts then
      bits = redis.call('GETRANGE', one.key, HEAD, HEAD + BUCKET_BYTES - 1)
    end
  else
    one.filter = 'renew'
  end
  if #bits ~= BUCKET_BYTES then bits = string.rep('\0', BUCKET_BYTES) end
  local last = math.floor(second / length)
  local function found(number)
    local failed, sent, tag = struct.unpack('<I3I3I2', bits, number % BUCKETS * 8 + 1)
    if tag ~= number % 65536 then return 0, 0 end
    return sent, math.min(failed, sent)
  end
  local function book(number, sent, failed)
    sent = math.min(sent, MOST)
    one.place = number % BUCKETS * 8
    one.word = struct.pack('<I3I3I2', math.min(failed, sent), sent, number % 65536)
  end
  local fails = check.leak > 0
  if one.count > 0 and fails then
    local number = math.floor(check.leak / length)
    local sent, failed = found(number)
    if number <= last and number > last - BUCKETS and sent > 0 then
      book(number, sent, failed + 1)
      bits = string.sub(bits, 1, one.place) .. one.word .. string.sub(bits, one.place + 9)
    end
  elseif one.count > 0 then
    local sent, failed = found(last)
    book(last, sent + math.floor(one.count), failed)
  end
  one.only_looks = not one.word and not one.counted
  one.sent, one.failed, one.from = 0, 0, 0
  for number = last - BUCKETS + 1, last do
    local sent, failed = found(number)
    one.sent, one.failed = one.sent + sent, one.failed + failed
  end
  one.rate = share_rate(one.sent, one.failed, check.least)
  local left, lost = one.sent, one.failed
  for number = last - BUCKETS + 1, last do
    if share_rate(left, lost, check.least) < check.limit then break end
    local sent, failed = found(number)
    left, lost = left - sent, lost - failed
    one.from = (number + BUCKETS) * length
  end
end

