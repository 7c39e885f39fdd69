# What the scripts of this directory share: each runs as root on a machine of its own that
# may be changed freely, and says which with `name` and `kind`.
# shellcheck shell=bash
set -euo pipefail

fail() {
  echo "FAILED ($name, $kind): $*" >&2
  [[ ! -s /tmp/said ]] || tail -n 30 /tmp/said >&2
  exit 1
}
# await WHAT COMMAND...: until the command succeeds.
await() {
  local what=$1 end=$((SECONDS + 60))
  shift
  until "$@"; do
    ((SECONDS < end)) || fail "not within a minute: $what"
    sleep 0.05
  done
}
# expect WHAT PATTERN TEXT
expect() { [[ $3 == $2 ]] || fail "$1: expected \"$2\", but got: $3"; }

# An SMTP session.
reply() {
  local line
  while IFS= read -r -t 60 line <&3; do
    REPLY=${line%$'\r'}
    [[ $REPLY == ???-* ]] || return 0
  done
  fail "the server hung up"
}
ask() { printf '%s\r\n' "$1" >&3 && reply; }
connects() { { exec 3<>"/dev/tcp/$1/25"; } 2>/dev/null; }
# session ADDRESS: the greeting, and EHLO.
session() {
  # A server that reads its configuration again does not listen for a moment.
  await "something listens on $1" connects "$1"
  reply
  ask 'EHLO client.test'
}
leave() {
  ask QUIT
  exec 3>&-
}
# login NAME
login() {
  ask "AUTH PLAIN $(printf '\0%s\0secret' "$1" | base64)"
  expect "the login of $1" '235*' "$REPLY"
}
sender() {
  ask "MAIL FROM:<$1>"
  expect "MAIL FROM:<$1>" '250*' "$REPLY"
}
# recipient PATTERN ADDRESS
recipient() {
  ask "RCPT TO:<$2>"
  expect "RCPT TO:<$2>" "$1" "$REPLY"
}
message() {
  ask DATA
  expect DATA '354*' "$REPLY"
  ask "Subject: $1"$'\r\n\r\n'"Hello."$'\r\n'"."
  expect "the message $1" '250*' "$REPLY"
}
# Mail from outside is accepted; by the next session, where the server was reading its
# configuration again.
accepts() { await 'mail is accepted' accepts_once; }
accepts_once() ( session_from_outside 2>/dev/null )
session_from_outside() {
  session 192.0.2.1
  sender stranger@example.org
  recipient '250*' root@mail.test
  leave
}

# setup STATUS ARGUMENT...: runs it; what it prints is in /tmp/said.
setup() {
  local status=0
  exirate setup "${@:2}" >/tmp/said 2>&1 </dev/null || status=$?
  ((status == $1)) || fail "exirate setup ${*:2}: status $status, expected $1"
}
# killed STEP ARGUMENT...: runs it until it kills itself at a step, status 137.
# The shell within reports the kill, to nobody.
killed() { (exirate setup --kill-at "$@" >/tmp/said 2>&1 </dev/null; exit) 2>/dev/null; }

# Every file of the configuration and of exirate's, with its mode and owner, but for the
# database: the rates stay.
everything() {
  # Not all of these exist everywhere.
  find /etc /usr /var/lib/exim4 /var/lib/exirate* /run/exirate* /var/spool/postfix/exirate \
    ! -path '/var/lib/exirate/exirate*' -printf '%y %m %U:%G %p %l\n' 2>/dev/null | sort || true
  { find /etc /var/lib/exim4 -type f -exec sha256sum {} + 2>/dev/null || true; } | sort -k 2
}
# unchanged WHAT: all files are as they were before.
unchanged() {
  everything >/tmp/after
  diff /tmp/before /tmp/after >/tmp/said || fail "$1: files are not as they were before"
}
