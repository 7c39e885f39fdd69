-- Every command, by the newest version and by the oldest: what is not needed is not asked
-- for, and what is sent all the same gets its reply.

dofile(helpers)

local function all(version, steps)
  local conn = mt.connect("unix:" .. socket)
  check(conn, "cannot connect")
  -- miltertest takes the steps before the actions.
  check(mt.negotiate(conn, version, steps, 0x1ff) == nil, "no negotiation of " .. version)
  check(mt.test_action(conn, SMFIF_QUARANTINE), "cannot hold messages")
  check(not mt.test_action(conn, SMFIF_CHGBODY), "would change bodies")
  if version == 6 then
    check(mt.test_option(conn, SMFIP_NOBODY), "wants bodies")
    check(mt.test_option(conn, SMFIP_NOHDRS), "wants headers")
    check(mt.test_option(conn, SMFIP_NR_CONN), "wants to reply to CONNECT")
    check(not mt.test_option(conn, SMFIP_NR_RCPT), "does not reply to RCPT")
  else
    check(not mt.test_option(conn, SMFIP_NR_CONN), "what version 2 does not know")
  end
  for _ = 1, 2 do
    mt.macro(conn, SMFIC_CONNECT, "j", "mx.example.org", "{daemon_name}", "smtpd")
    check(mt.conninfo(conn, "client.example", "192.0.2.7") == nil, "no CONNECT")
    mt.macro(conn, SMFIC_HELO, "{tls_version}", "")
    check(mt.helo(conn, "client.example") == nil, "no HELO")
    check(sent(conn, SMFIP_NOUNKNOWN, mt.unknown, "XYZZY"), "no UNKNOWN")
    check(mt.mailfrom(conn, "<ann@example.org>") == nil, "no MAIL")
    check(mt.rcptto(conn, "<a@example.com>") == nil, "no RCPT")
    check(mt.getreply(conn) == SMFIR_CONTINUE, "RCPT refused")
    check(sent(conn, SMFIP_NODATA, mt.data), "no DATA")
    check(sent(conn, SMFIP_NOHDRS, mt.header, "From", "ann@example.org"), "no header")
    check(sent(conn, SMFIP_NOHDRS, mt.header, "Subject", ""), "no empty header")
    check(sent(conn, SMFIP_NOEOH, mt.eoh), "no end of headers")
    check(sent(conn, SMFIP_NOBODY, mt.bodystring, "text\r\n"), "no body")
    check(sent(conn, SMFIP_NOBODY, mt.bodyrandom, 100000), "no long body")
    check(mt.eom(conn) == nil, "no end of message")
    check(mt.getreply(conn) == SMFIR_CONTINUE, "message refused")
    check(not mt.eom_check(conn, MT_QUARANTINE), "message held")
    check(not mt.eom_check(conn, MT_HDRADD), "header added")
    check(mt.abort(conn) == nil, "no ABORT")
  end
  mt.disconnect(conn)
end

all(6, 0x1fffff)
all(2, 0x7f)
all(2, 0)
all(4, 0x3ff)

-- A local submission, as Sendmail says it.
local conn = mt.connect("unix:" .. socket)
check(mt.negotiate(conn, nil, nil, nil) == nil, "no negotiation")
check(mt.conninfo(conn, "localhost", "unspec") == nil, "no CONNECT")
check(mt.mailfrom(conn, "<root@example.org>") == nil, "no MAIL")
check(mt.rcptto(conn, "<a@example.com>") == nil, "no RCPT")
check(mt.eom(conn) == nil, "no end of message")
check(mt.getreply(conn) == SMFIR_CONTINUE, "message refused")
mt.disconnect(conn, false)

-- Too old.
conn = mt.connect("unix:" .. socket)
check(mt.negotiate(conn, 1, nil, nil) ~= nil, "version 1 was negotiated")
