-- The second message of a sender is held, and the fourth is refused at its end.

dofile(helpers)

local conn = mt.connect("unix:" .. socket)
check(conn, "cannot connect")
check(mt.negotiate(conn, 6, 0x1fffff, 0x1ff) == nil, "no negotiation")
check(not mt.test_option(conn, SMFIP_NOBODY), "does not want bodies")
check(mt.conninfo(conn, "client.example", "192.0.2.7") == nil, "no CONNECT")
for n, reply in ipairs({ SMFIR_CONTINUE, SMFIR_CONTINUE, SMFIR_CONTINUE, SMFIR_REPLYCODE }) do
  check(mt.mailfrom(conn, "<ann@example.org>") == nil, "no MAIL")
  check(mt.rcptto(conn, "<a@example.com>") == nil, "no RCPT")
  check(mt.getreply(conn) == SMFIR_CONTINUE, "RCPT refused")
  check(sent(conn, SMFIP_NOHDRS, mt.header, "Subject", "number " .. n), "no header")
  check(sent(conn, SMFIP_NOEOH, mt.eoh), "no end of headers")
  check(sent(conn, SMFIP_NOBODY, mt.bodystring, string.rep("x", 1000) .. "\r\n"), "no body")
  check(mt.eom(conn) == nil, "no end of message")
  check(mt.getreply(conn) == reply, n .. " got " .. string.char(mt.getreply(conn)))
  local held = mt.eom_check(conn, MT_QUARANTINE)
  check(held == (n == 2 or n == 3), n .. " held: " .. tostring(held))
end
check(mt.eom_check(conn, MT_SMTPREPLY, "451", "4.7.1", "100%% of the bytes"), "another text")
mt.disconnect(conn)
