-- What the scripts beside this share.

-- Fails the script, and says why, if `is` is false.
function check(is, what)
  if not is then
    mt.echo(what)
    error(what, 2)
  end
end

-- Sends what the milter has not asked to be left out.
function sent(conn, option, send, ...)
  return mt.test_option(conn, option) or send(conn, ...) == nil
end
