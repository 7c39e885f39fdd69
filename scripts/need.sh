# shellcheck shell=bash
# Sourced by the scripts beside it: sees to it that the machine has what they
# need. What is missing is installed, or the script ends here: nothing is
# skipped in silence.

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 2; }

# need PACKAGE...: installs those of Debian's packages that are missing.
need() {
  local package missing=() temporary_policy=
  for package; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  command -v apt-get >/dev/null ||
    die "needs the Debian packages ${missing[*]}, and there is no apt-get here"
  ((EUID == 0)) || die "needs the Debian packages ${missing[*]}: install them, or run this as root"
  # Two mail servers cannot be installed beside each other: do not throw out
  # the one that this machine may be living on.
  local server
  server=$(dpkg-query -W -f='${db:Status-Status} ${Package} ${Provides}\n' 2>/dev/null |
    awk '$1 == "installed" && /mail-transport-agent/ && $2 !~ /^exim4-daemon/ { print $2; exit }')
  [[ -z $server ]] || die "needs ${missing[*]}, which would replace the mail server $server here: use another machine or a container"

  say "Installing ${missing[*]}"
  # No daemon is to start: Debian's own way of saying so.
  if [[ ! -e /usr/sbin/policy-rc.d ]]; then
    temporary_policy=/usr/sbin/policy-rc.d
    printf '#!/bin/sh\nexit 101\n' >"$temporary_policy"
    chmod 755 "$temporary_policy"
  fi
  local status=0
  {
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" ||
      { apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}"; }
  } >/dev/null || status=$?
  [[ -z $temporary_policy ]] || rm -f "$temporary_policy"
  ((status == 0)) || die "apt-get could not install ${missing[*]}"
}

# need_rust: a Rust toolchain and the C linker that it calls.
need_rust() {
  [[ -x $HOME/.cargo/bin/cargo ]] && PATH=$PATH:$HOME/.cargo/bin
  command -v cargo >/dev/null || die "needs a Rust toolchain: see https://rustup.rs"
  command -v cc >/dev/null || need gcc libc6-dev
}
