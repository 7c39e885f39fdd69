-- Two recipients an hour for each login: the third is refused, whichever message and
-- connection it is in, and only for that login.

dofile(helpers)

local function begun(ip)
  local conn = mt.connect("unix:" .. socket)
  check(conn, "cannot connect")
  check(mt.negotiate(conn, nil, nil, nil) == nil, "no negotiation")
  check(mt.conninfo(conn, "client.example", ip) == nil, "no CONNECT")
  check(mt.helo(conn, "client.example") == nil, "no HELO")
  return conn
end

local function mail(conn, login)
  mt.macro(conn, SMFIC_MAIL, "{auth_authen}", login, "{auth_type}", "PLAIN", "i", "4QUEUE")
  check(mt.mailfrom(conn, "<" .. login .. "@example.org>", "SIZE=100") == nil, "no MAIL")
end

local function rcpt(conn, address, reply)
  mt.macro(conn, SMFIC_RCPT, "{rcpt_mailer}", "smtp")
  check(mt.rcptto(conn, "<" .. address .. ">") == nil, "no RCPT")
  check(mt.getreply(conn) == reply, address .. " got " .. string.char(mt.getreply(conn)))
end

local function message(conn, reply)
  check(sent(conn, SMFIP_NODATA, mt.data), "no DATA")
  check(sent(conn, SMFIP_NOHDRS, mt.header, "Subject", "a test"), "no header")
  check(sent(conn, SMFIP_NOEOH, mt.eoh), "no end of headers")
  check(sent(conn, SMFIP_NOBODY, mt.bodystring, "text\r\n"), "no body")
  check(mt.eom(conn) == nil, "no end of message")
  check(mt.getreply(conn) == reply, "the message got " .. string.char(mt.getreply(conn)))
end

local one = begun("192.0.2.7")
mail(one, "ann")
rcpt(one, "a@example.com", SMFIR_CONTINUE)
message(one, SMFIR_CONTINUE)
-- The login of the message before does not hold: the client is counted.
check(mt.mailfrom(one, "<>") == nil, "no MAIL")
rcpt(one, "b@example.com", SMFIR_CONTINUE)
check(mt.abort(one) == nil, "no ABORT")
mail(one, "ann")
rcpt(one, "b@example.com", SMFIR_CONTINUE)
rcpt(one, "c@example.com", SMFIR_REPLYCODE)
rcpt(one, "d@example.com", SMFIR_REPLYCODE)
-- The message goes to the recipient that was accepted.
message(one, SMFIR_CONTINUE)

local two = begun("198.51.100.9")
mail(two, "ann")
rcpt(two, "e@example.com", SMFIR_REPLYCODE)
check(mt.abort(two) == nil, "no ABORT")
mail(two, "bob")
rcpt(two, "e@example.com", SMFIR_CONTINUE)
message(two, SMFIR_CONTINUE)
mt.disconnect(two)
mt.disconnect(one)
