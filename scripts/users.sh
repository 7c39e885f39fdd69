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
