# shellcheck shell=bash
# Sourced by the scripts beside it. Its functions install what a script needs,
# or end the script with an error: nothing is skipped silently.

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 2; }

# wait_for WHAT COMMAND...: until the command succeeds. Busy machines get five minutes.
wait_for() {
  local deadline=$((SECONDS + 300))
  until "${@:2}"; do
    ((SECONDS < deadline)) || die "waited five minutes for $1"
    sleep 0.05
  done
}

# missing_packages PACKAGE...: print those of these Debian packages that are missing, one a line.
missing_packages() {
  local package
  for package; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
  done
}

# need PACKAGE...: install those of these Debian packages that are missing.
need() {
  local missing=() temporary_policy=
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0

  command -v apt-get >/dev/null ||
    die "needs the Debian packages ${missing[*]}, and there is no apt-get here"
  ((EUID == 0)) || die "needs the Debian packages ${missing[*]}: install them, or run this as root"
  # Debian permits one mail server at a time: do not replace the one that this
  # machine uses.
  local server
  server=$(dpkg-query -W -f='${db:Status-Status} ${Package} ${Provides}\n' 2>/dev/null |
    awk '$1 == "installed" && /mail-transport-agent/ && $2 !~ /^exim4-daemon/ { print $2; exit }')
  [[ -z $server ]] || die "needs ${missing[*]}, which would replace the mail server $server here: use another machine or a container"

  say "Installing ${missing[*]}"
  # A policy that no daemon may start.
  if [[ ! -e /usr/sbin/policy-rc.d ]]; then
    temporary_policy=/usr/sbin/policy-rc.d
    printf '#!/bin/sh\nexit 101\n' >"$temporary_policy"
    chmod 755 "$temporary_policy"
  fi
  # What apt prints is shown only if the packages cannot be installed. On a fresh
  # machine the lists of packages are empty; old ones name files that are gone.
  local status=0 output
  output=$(mktemp)
  if ! apt-cache show "${missing[@]}" >/dev/null 2>&1; then apt-get update -qq >"$output" 2>&1; fi
  apt_install "${missing[@]}" >>"$output" 2>&1 ||
    { apt-get update -qq && apt_install "${missing[@]}"; } >>"$output" 2>&1 || status=$?
  [[ -z $temporary_policy ]] || rm -f "$temporary_policy"
  ((status == 0)) || cat "$output" >&2
  rm -f "$output"
  ((status == 0)) || die "apt-get could not install ${missing[*]}"
}
apt_install() { DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" </dev/null; }

# need_rust: a Rust toolchain and the C linker that it calls.
need_rust() {
  [[ -x $HOME/.cargo/bin/cargo ]] && PATH=$PATH:$HOME/.cargo/bin
  command -v cargo >/dev/null || die "needs a Rust toolchain: see https://rustup.rs"
  command -v cc >/dev/null || need gcc libc6-dev
}

# The directories of this machine that the compiler would write into what it builds, such as
# in the place of a panic, and what it writes instead: what is built is the same in each
# directory and for each user. Vendored crates have the names that they have in Cargo's registry.
same_everywhere() {
  local registry=/cargo/registry/src
  printf 'build.rustflags = ["--remap-path-prefix=%s", "--remap-path-prefix=%s", "--remap-path-prefix=%s"]' \
    "$PWD=/exirate" "$PWD/vendor=$registry/index.crates.io-1949cf8c6b5b557f" \
    "${CARGO_HOME:-$HOME/.cargo}/registry/src=$registry"
}

# build_library rates|trace [DIRECTORY [OPTION]...]: the library that Exim loads as exirate.so or as
# exirate-trace.so, in release form and where the tests look for it. Each has a
# target directory of its own, as Cargo gives both the same file name.
build_library() {
  cargo rustc --config .cargo/library.toml --config "$(same_everywhere)" --locked --release --lib --crate-type cdylib \
    --no-default-features --features "$1" --target-dir "${2:-target/exim-$1}" "${@:3}"
}

# build_program: the program, in release form; with EXIRATE_QUICK_BUILD that of the tests takes its place, as its
# speed is not tested.
build_program() {
  if [[ -n ${EXIRATE_QUICK_BUILD:-} ]]; then
    # Any test that runs it: most of it is built for that.
    cargo test --quiet --locked --no-run --test rspamd --target-dir target
    mkdir -p target/release
    # Several tests do this at the same time.
    local new
    new=$(mktemp target/release/exirate.XXXXXX)
    strip -o "$new" target/debug/exirate
    chmod 755 "$new"
    mv "$new" target/release/exirate
  else
    cargo build --config "$(same_everywhere)" --locked --release --bin exirate --target-dir target
  fi
}

# build_all: both libraries and the program.
build_all() {
  need_rust
  build_library rates
  build_library trace
  build_program
}

# put_documents DIRECTORY: in the places that they have in the repository, so that their links work.
put_documents() {
  local format
  install -D -m 644 -t "$1" README.md
  install -D -m 644 -t "$1/docs" docs/*.md docs/*.png
  for format in src/*/FORMAT.md; do install -D -m 644 "$format" "$1/$format"; done
}

# put_archive DIRECTORY PROGRAM RATES TRACE: what the archive of a release contains but for the
# licences of what is linked; scripts/install installs from there.
put_archive() {
  install -D "$2" "$1/bin/exirate"
  install -D "$3" "$1/lib/exirate.so"
  install -D "$4" "$1/lib/exirate-trace.so"
  mkdir -p "$1"/{scripts,debian}
  cp -r exim "$1/"
  cp -r debian/{conf.d,README.Debian} "$1/debian/"
  cp -r scripts/{install,need.sh,users.sh,maintenance} "$1/scripts/"
  ln -s scripts/install "$1/install"
  cp CHANGELOG.md SECURITY.md "$1/"
  put_documents "$1"
}

# need_axe: the accessibility checker that runs in the pages of tests, from npm.
need_axe() {
  local version=4.14.1 tools=target/tools
  ! grep -qs "\"version\": \"$version\"" "$tools/node_modules/axe-core/package.json" || return 0
  command -v npm >/dev/null || need npm
  mkdir -p "$tools"
  npm install --prefix "$tools" --no-audit --no-fund --no-save --ignore-scripts --silent "axe-core@$version" ||
    die "npm could not install axe-core $version"
}
