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
  local what=$1 end=$((SECONDS + 300))
  shift
  until "$@"; do
    ((SECONDS < end)) || fail "not within five minutes: $what"
    sleep 0.05
  done
}
# expect WHAT PATTERN TEXT
expect() { [[ $3 == $2 ]] || fail "$1: expected \"$2\", but got: $3"; }

# An SMTP session.
reply() {
  local line
  while IFS= read -r -t 300 line <&3; do
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

# A program's mail: try USER RECIPIENT...
try() { printf 'Subject: try\n\nHello.\n' | runuser -u "$1" -- /usr/sbin/sendmail -oi "${@:2}"; }
friends() { printf "friend%d@example.org\n" $(seq "$1"); }
# others_send CLIENT CODE AT: whoever is not over the limit. CLIENT is a stranger's address, CODE
# what relaying is refused with, and AT what follows the name in a login.
others_send() {
  local list n
  session "$1"
  sender stranger@example.org
  recipient "$2" somebody@example.org
  recipient '250*' alice@mail.test
  message 'for alice'
  leave
  # Webmail on this machine, by a login, and by a program without one.
  session 127.0.0.1
  login "carol$3"
  sender carol@mail.test
  recipient '250*' friend@example.org
  leave
  session 127.0.0.1
  sender carol@mail.test
  for ((n = 1; n <= 60; n++)); do recipient '250*' "friend$n@example.org"; done
  leave
  # A bounce, cron mail of root's and of a user's, and the list manager.
  session 192.0.2.1
  sender ''
  recipient '250*' alice@mail.test
  message bounce
  leave
  try root alice@mail.test || fail "root's cron mail is refused"
  try carol alice@mail.test || fail "a user's cron mail is refused"
  mapfile -t list < <(friends 150)
  try list "${list[@]}" || fail "the list manager is limited"
}

# alerts_arrive AT: carol exceeds her limit, and alice, to whom alerts go, has mail: of the test that
# setup has sent, and of carol. AT is what follows the name in a login.
alerts_arrive() {
  local n
  await 'the test alert arrives' grep -qs '^Subject: exirate: test of alerts from' /var/mail/alice
  session 192.0.2.1
  login "carol$1"
  sender carol@mail.test
  for ((n = 1; n <= 105; n++)); do ask "RCPT TO:<friend$n@example.org>"; done
  expect 'a recipient over the limit' '4*Over the limit*' "$REPLY"
  leave
  await 'the alert arrives' grep -qsE '^Subject: exirate: carol(@mail.test)? is over the limit on' /var/mail/alice
  has_all() {
    exirate doctor >/tmp/said 2>&1 || true
    grep -q 'alerts: mail got all' /tmp/said
  }
  await 'exirate doctor knows that it was sent' has_all
  exirate status >/tmp/said 2>&1 || true
  grep -qE 'units +.*exirate-alerts runs' /tmp/said || grep -qE '^ +exirate-alerts runs' /tmp/said || fail "exirate status does not show the daemon"
  ! grep -qE 'does not start at boot|there is no user' /tmp/said || fail "exirate status warns of a unit"
  grep -q ' (alerted)$' /tmp/said || fail "exirate status does not say that it was sent"
}
# upkeep_works: the jobs of docs/monitoring.md, as it says to start them, find the database.
upkeep_works() {
  local line
  if [[ -d /run/systemd/system ]]; then
    systemctl start exirate-stats.service exirate-verify.service >/tmp/said 2>&1 ||
      { journalctl --no-pager -u exirate-stats -u exirate-verify >>/tmp/said; fail "the metrics or the check fail"; }
  else
    bash -e -c "$(sed -n 's/^#     \(install .*\)/\1/p' /usr/share/doc/exirate/examples/exirate.cron)"
    while read -r line; do
      bash -c "$line" >/tmp/said 2>&1
      [[ ! -s /tmp/said ]] || fail "a job of cron's says something: $line"
    done < <(sed -n 's/^[*1].* root  //p' /usr/share/doc/exirate/examples/exirate.cron)
  fi
  grep -q '^exirate_keys' /var/lib/exirate-metrics/exirate.prom || fail "there are no metrics of the database"
  rm -r /var/lib/exirate-metrics
}
# web METHOD PATH [TOKEN [BODY]]: what the web service replies.
web() {
  perl -MIO::Socket::UNIX -e '
    my ($method, $path, $token, $body) = (@ARGV, "", "");
    my $web = IO::Socket::UNIX->new("/run/exirate-web/web") or die "cannot connect: $!\n";
    print $web "$method /api/v1/$path HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
      "Authorization: Bearer $token\r\nContent-Type: application/json\r\n",
      "Content-Length: ", length $body, "\r\n\r\n$body";
    print while <$web>;' "$@"
}
# desk_works: as docs/desk.md says to start it, the web service shows this database; of another
# user, it does not start.
desk_works() {
  local token unit other
  unit=exirate-web@$(exirate where user)
  other=exirate-web@$([[ $unit == *@exirate-mail ]] && echo Debian-exim || echo exirate-mail)
  if id "${other#*@}" >/dev/null 2>&1; then
    ! systemctl start "$other" >/tmp/said 2>&1 || fail "$other starts, and cannot read the database"
    systemctl stop "$other" "exirate-broker@${other#*@}" >/dev/null 2>&1 || true
    systemctl reset-failed "$other" >/dev/null 2>&1 || true
  fi
  bash -e -c "$(sed -n 's/^systemctl enable --now "exirate-web.*/&/p' /usr/share/doc/exirate/docs/desk.md)" >/tmp/said 2>&1 ||
    { journalctl --no-pager -u "$unit" >>/tmp/said; fail "$unit does not start"; }
  token=$(exirate web token add here --role view --until 1d 2>/dev/null | grep -o 'exirate_[A-Za-z0-9_-]*')
  systemctl --quiet is-active "exirate-broker@${unit#*@}" exirate-held || fail "the broker and the queue's daemon do not run"
  expect 'the web service' 'HTTP/1.1 200*"keys"*' "$(web GET status "$token")"
  exirate web token remove here >/dev/null 2>&1
  systemctl --quiet disable --now "$unit" "exirate-broker@${unit#*@}"
  systemctl --quiet stop exirate-held
  rm -rf /run/exirate-held /etc/exirate/web.tokens* /var/lib/exirate-broker /run/exirate-broker /run/exirate-web
}
# desk_by_hand: the same without systemd.
desk_by_hand() {
  local token one
  bash -e -c "$(sed -n '/^user=\$(exirate where user)$/,/^```$/{/^```$/!p}' /usr/share/doc/exirate/docs/desk.md)" >/tmp/said 2>&1 ||
    fail "the lines of desk.md fail"
  cat_logs() { cat /var/log/exirate-{held,broker,web}.log >/tmp/said 2>&1; }
  serves() { [[ -S /run/exirate-web/web && -S /run/exirate-broker/broker && -S /run/exirate-held/held ]]; }
  await 'the web service, the broker and the queue listen' serves
  token=$(exirate web token add here --role help --until 1d 2>/dev/null | grep -o 'exirate_[A-Za-z0-9_-]*')
  cat_logs
  expect 'the web service' 'HTTP/1.1 200*"keys"*' "$(web GET status "$token")"
  expect 'the broker' 'HTTP/1.1 200*alice*' "$(web POST deny "$token" '{"key": "alice", "seconds": 3600, "reason": "a try"}')"
  exirate deny alice --end >/tmp/said 2>&1 || fail "what the broker has set cannot be ended"
  exirate web token remove here >/dev/null 2>&1
  for one in web broker held; do
    start-stop-daemon --stop --quiet --retry 30 --pidfile "/run/exirate-$one.pid" || fail "serve $one does not stop"
  done
  rm -rf /run/exirate-{held,broker,web}* /etc/exirate/web.tokens* /var/lib/exirate-broker /var/log/exirate-{held,broker,web}.log
}
# follower_works: as docs/failed-deliveries.md says to start it, it runs.
follower_works() {
  local unit
  unit=exirate-follow@$(exirate where user)
  bash -e -c "$(sed -n 's/^systemctl enable --now "exirate-follow[^ ]* [^ ]* user)".*/&/p' /usr/share/doc/exirate/docs/failed-deliveries.md)" >/tmp/said 2>&1 ||
    { journalctl --no-pager -u "$unit" >>/tmp/said; fail "$unit does not start"; }
  systemctl --quiet is-active "$unit" || fail "$unit does not run"
  systemctl --quiet disable --now "$unit"
  rm -rf /var/lib/exirate-follow
}

# held_mail_is_named AT: a message that a policy holds is named by status, undo, removal and purge, each
# with the command that has it delivered: the last one does. The package is gone afterwards.
held_mail_is_named() {
  local release
  printf '[policy.kept]\nwhen = "authenticated"\nkey = "auth"\naction = "enforce"\nverdicts = { "100%%" = "hold" }\ndefault.messages = "0.5/1h"\n' \
    >>/etc/exirate/policy.toml
  exirate policy apply >/tmp/said 2>&1 || fail "a policy that holds cannot be applied"
  session 192.0.2.1
  login "carol$1"
  sender carol@mail.test
  recipient '250*' alice@mail.test
  message 'kept until somebody says so'
  leave
  holds() { exirate held >/tmp/said 2>&1; grep -q 'carol' /tmp/said; }
  await 'the message is held' holds
  exirate status >/tmp/said 2>&1 || true
  grep -q 'held .*1 message' /tmp/said || fail "exirate status does not count it"
  setup 2 --undo
  grep -q 'exirate held release' /tmp/said || fail "--undo does not name the command that releases it"
  # The policy that was added stays in its file.
  setup 1 --undo --yes
  grep -q 'it stays held' /tmp/said || fail "--undo does not say that it stays"
  ! dpkg --remove exirate >/tmp/said 2>&1 || fail "the package is removed while mail is held"
  grep -q 'exirate held release' /tmp/said || fail "the removal does not name the command"
  EXIRATE_REMOVE_ANYWAY=yes dpkg --remove exirate >/tmp/said 2>&1 || fail "the package cannot be removed"
  ! dpkg --purge exirate >/tmp/said 2>&1 || fail "it is purged while mail is held"
  release=$(sed -n 's/^    \(postsuper -H\|sendmail -Am\|exim4 -Mt\)/\1/p' /tmp/said)
  [[ $release ]] || fail "the purge does not name the mail server's command"
  bash -c "$release" >/tmp/said 2>&1 || fail "the mail server does not release it: $release"
  await 'it is delivered' grep -qs '^Subject: kept until somebody says so' /var/mail/alice
  dpkg --purge exirate >/tmp/said 2>&1 || fail "the package cannot be purged"
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
# setup_fails WHAT WORDS: it does, all stays, and WORDS say why.
setup_fails() {
  everything >/tmp/before
  setup 2 --yes
  grep -q "$2" /tmp/said || fail "$1: it does not say why"
  unchanged "$1"
}

# killed_at_each STRIDE: setup and --undo are killed at each STRIDE-th of their steps: mail is
# accepted, and the next run completes, or takes all back.
killed_at_each() {
  local step back status
  for ((step = 0; ; step += $1)); do
    status=0
    killed $step --yes || status=$?
    ((status == 137)) || break
    accepts
    if ((step % 2)); then setup 0 --yes; fi
    setup 0 --undo --yes
    unchanged "killed at step $step"
  done
  ((status == 0 && step > 8)) || fail "only $step steps: status $status"
  for ((back = 0; ; back += $1)); do
    status=0
    killed $back --undo --yes || status=$?
    ((status == 137)) || break
    accepts
    setup 0 --undo --yes
    unchanged "killed at step $back of --undo"
    setup 0 --yes
  done
  ((status == 0 && back > 5)) || fail "only $back steps back: status $status"
  unchanged '--undo'
  count 'kills of exirate setup at its steps' $(((step + back) / $1))
}
# Whether no process of a group is left, but for that which writes a daemon's log.
has_ended() {
  awk -v group="$1" '$5 == group && $3 != "Z" && $2 != "(logger)" { exit 1 }' /proc/[0-9]*/stat 2>/dev/null
}
# killed_at_random COUNT: the same at any moment, also of a program that setup has started.
killed_at_random() {
  local n began longest pid arguments
  began=${EPOCHREALTIME/./}
  setup 0 --yes
  longest=$((${EPOCHREALTIME/./} - began))
  setup 0 --undo --yes
  for ((n = 0; n < $1; n++)); do
    arguments=(--yes)
    if ((n % 2)); then
      setup 0 --yes
      arguments=(--undo --yes)
    fi
    # Its own process group, as what it has started goes on.
    setsid exirate setup "${arguments[@]}" >/tmp/said 2>&1 </dev/null &
    pid=$!
    sleep "$(((RANDOM * 32768 + RANDOM) % longest))e-6"
    kill -KILL $pid 2>/dev/null || true
    { wait $pid || true; } 2>/dev/null
    accepts
    await 'what it has started ends' has_ended $pid
    if ((n % 4 < 2)); then setup 0 --yes; fi
    setup 0 --undo --yes
    unchanged "kill $n at random, of ${arguments[*]}"
  done
  count 'kills of exirate setup at random' "$1"
}
# count WHAT NUMBER: for the summary of scripts/test.
count() {
  echo "$1: $2"
  [[ -z ${EXIRATE_TEST_COUNTS:-} ]] || echo "$1: $2" >>"$EXIRATE_TEST_COUNTS"
}
