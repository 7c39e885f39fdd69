# shellcheck shell=sh
# Functions of scripts/install and, as scripts/package puts them into it, of the package's
# postinst: the users and the directories of the daemons, as the files for systemd's tools have
# them. Where systemd is missing, they are read here.

# make_users FILE: the users of a file in the format of sysusers.d.
make_users() {
  if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers "$1"
    return
  fi
  sed -n 's/^u \([^ ]*\) - "\([^"]*\)" \([^ ]*\)$/\1|\3|\2/p' "$1" |
    while IFS='|' read -r user home comment; do
      [ "$home" != - ] || home=/nonexistent
      id "$user" >/dev/null 2>&1 ||
        useradd --system --user-group --no-create-home --home-dir "$home" --shell /usr/sbin/nologin --comment "$comment" "$user"
    done
}

# make_directories FILE: the directories of a file in the format of tmpfiles.d.
make_directories() {
  if command -v systemd-tmpfiles >/dev/null; then
    systemd-tmpfiles --create "$1"
    return
  fi
  sed -n 's/^d \([^ ]*\) :\([^ ]*\) :\([^ ]*\) :\([^ ]*\) -$/\1 \2 \3 \4/p' "$1" |
    while read -r directory mode user group; do
      [ -d "$directory" ] || install -d -m "$mode" -o "$user" -g "$group" "$directory"
    done
}

# replace_deliver: who had enabled the units that sent alerts in 0.1.0 goes on receiving them, by the
# daemon that has taken their place. Also where systemd does not run, as in an image that is built.
replace_deliver() {
  local unit wanted='' wants=/etc/systemd/system
  for unit in paths.target.wants/exirate-deliver.path timers.target.wants/exirate-deliver.timer; do
    [ -L "$wants/$unit" ] || continue
    wanted=yes
    rm "$wants/$unit"
    rmdir --ignore-fail-on-non-empty "$wants/${unit%/*}"
  done
  if [ -d /run/systemd/system ]; then
    systemctl stop exirate-deliver.path exirate-deliver.timer 2>/dev/null || true
  fi
  [ -n "$wanted" ] || return 0
  systemctl --quiet enable exirate-alerts.service || true
  if [ -d /run/systemd/system ]; then
    systemctl start exirate-alerts.service || true
  fi
  echo "exirate: exirate-alerts.service sends alerts now, in place of exirate-deliver.path"
  if [ -d "$wants/exirate-deliver.service.d" ]; then
    echo "exirate: $wants/exirate-deliver.service.d is no longer used: the daemon finds the database"
  fi
}

# start_callers USER SPOOL EXIRATE [OPTION]...: where the configuration of this Exim uses the library, the
# daemon runs that decides about accounts that start Exim themselves, now and at each boot. In 0.1.0
# the library decided about them: without the daemon their mail would be deferred or held.
start_callers() {
  local user=$1 spool=$2 exirate=$3 unit=exirate-mail@$1.service init=exirate-mail status=0
  shift 3
  "$exirate" rules --references "$@" >/dev/null 2>&1 || status=$?
  [ "$status" -eq 1 ] || return 0
  if [ -d /run/systemd/system ]; then
    if systemctl --quiet is-enabled "$unit" 2>/dev/null && systemctl --quiet is-active "$unit"; then return 0; fi
    systemctl --quiet enable "$unit" && systemctl start "$unit" || status=2
  else
    # In an image, for its first boot.
    ! command -v systemctl >/dev/null || systemctl --quiet enable "$unit" || true
    if [ -x /etc/init.d/$init ] && command -v invoke-rc.d >/dev/null; then
      if invoke-rc.d $init status >/dev/null 2>&1; then return 0; fi
      [ -e /etc/default/$init ] ||
        printf '# The daemon decides about accounts that start Exim themselves.\nuser=%s\ncallers=%s\n' "$user" "$spool" >/etc/default/$init
      update-rc.d $init defaults >/dev/null && update-rc.d $init enable >/dev/null &&
        invoke-rc.d $init start || status=2
    fi
  fi
  if [ "$status" -ne 1 ]; then
    echo "exirate: the daemon exirate-mail does not start: mail of local accounts is deferred or held until it runs" >&2
    return 0
  fi
  echo "exirate: the daemon exirate-mail decides about local accounts that start Exim themselves now"
  # What was held since the library was replaced.
  "$exirate" held decide --server exim >/dev/null 2>&1 || true
}
