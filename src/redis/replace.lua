-- Replaces a record by another one, or deletes it, unless it has changed meanwhile.
-- record.lua stands before this.
--
-- KEYS[1]: the record. ARGV[1]: its header as it was read; empty if there was none.
-- ARGV[2]: the new record; empty to delete it. ARGV[3]: 1 if it is that of a bucket.
-- Returns 1 if that was done, 0 if the record is another one now. Every change of a record
-- changes its header, which has the number of the event.

if redis.call('GETRANGE', KEYS[1], 0, HEAD - 1) ~= ARGV[1] then return 0 end
local new = ARGV[2]
if new == '' then
  redis.call('DEL', KEYS[1])
else
  local state = read_head(string.sub(new, 1, HEAD))
  redis.call('SET', KEYS[1], new, 'PX', ttl(state, ARGV[3] == '1'))
end
return 1
