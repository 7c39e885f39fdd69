# What scripts/try-package and scripts/try-archive share: a key, and what scripts/sign makes with it.
# shellcheck shell=bash

# documented FILE WORDS: the commands of the block in it that has these words.
documented() {
  awk -v words="$2" '/^ *```sh$/ { within = 1; block = ""; next }
    within && /^ *```$/ { within = 0; if (index(block, words)) { printf "%s", block; found++ } }
    within { block = block $0 "\n" }
    END { exit found != 1 }' "$1" || die "there is not one block in $1 with $2"
}

# make_key DIRECTORY: by the commands of docs/release.md, without a passphrase; its fingerprint is in $key,
# and gpg, and so scripts/sign, has it.
make_key() {
  local lines
  lines=$(documented docs/release.md --quick-generate-key)
  [[ $lines == *=/media/key/gnupg$'\n'* ]] || die "docs/release.md puts the key elsewhere"
  gpg() { command gpg --batch --quiet --pinentry-mode loopback --passphrase '' "$@" 2>/dev/null; }
  eval "${lines//\/media\/key\/gnupg/$1}"
  unset -f gpg
  ((${#key} == 40)) || die "docs/release.md makes no key"
}

# end_keys DIRECTORY...: with the agents that gpg has started.
end_keys() {
  local one
  for one; do
    [[ ! -d $one ]] || gpgconf --homedir "$one" --kill all
    rm -rf "$one"
  done
}

# higher DEB NEW: the same package with another version, VERSION+next.
higher() {
  local version work
  version=$(dpkg-deb --field "$1" Version) work=$(mktemp -d)
  dpkg-deb --control "$1" "$work/control"
  sed -i "s/$version/&+next/" "$work/control/control"
  tar --create --owner=0 --group=0 --directory="$work/control" . | xz -0 >"$work/control.tar.xz"
  cp "$1" "$2"
  ar r "$2" "$work/control.tar.xz"
  rm -r "$work"
}

# change FILE: its last byte; another name of it stays as it was.
change() {
  cp "$1" "$1.changed"
  printf '\1' | dd bs=1 seek="$(($(stat -c %s "$1") - 1))" conv=notrunc of="$1.changed" status=none
  mv -f "$1.changed" "$1"
}

# make_repositories DIRECTORY: of the packages in target/debian. `first` has them, and `next` is the same repository
# with a higher version of them; apt must refuse the others. The fingerprint of the key is in $ours.
make_repositories() {
  local folder=$1 keys now one
  keys=$(mktemp -d) now=$(date +%s)
  rm -rf "$folder"
  mkdir -p "$folder"/{commands,one,two}
  documented README.md 'curl -fsS -o /etc/apt/keyrings/' >"$folder/commands/key"
  documented README.md /etc/apt/sources.list.d/exirate.sources >"$folder/commands/source"
  sed -i 's|https://packages\.example\.org|http://127.0.0.1:8000|' "$folder"/commands/*
  for one in target/debian/*.deb; do
    cp "$one" "$folder/one/"
    higher "$one" "$folder/two/$(basename "${one/_/_next_}")"
  done
  for one in one two; do (cd "$folder/$one" && sha256sum -- *.deb >SHA256SUMS); done

  # publish NAME DAYS RELEASE: as it was so many days ago.
  publish() { SOURCE_DATE_EPOCH=$((now - $2 * 24 * 60 * 60)) scripts/sign --key "$key" --repository "$folder/$1" "$folder/$3" >/dev/null; }
  make_key "$keys/ours"
  ours=$key
  publish first 2 one
  publish again 2 one
  diff -r --exclude='InRelease' --exclude='Release.gpg' "$folder/first" "$folder/again" || die "the same packages and date give other lists"
  rm -r "$folder/again"
  publish expired 181 one
  for one in next package packages unsigned changed; do
    mkdir "$folder/$one"
    cp -a "$folder/first/dists" "$folder/$one/"
    cp -al "$folder/first/pool" "$folder/$one/"
  done
  publish next 1 two
  make_key "$keys/other"
  publish other 2 one
  end_keys "$keys"/*
  rm -r "$keys" "$folder"/{one,two}

  change "$(compgen -G "$folder/package/pool/main/e/exirate/exirate_*.deb")"
  while read -r one; do change "$one"; done < <(find "$folder/packages/dists/stable/main" -type f)
  rm "$folder"/unsigned/dists/stable/{InRelease,Release.gpg}
  sed -i 's/^Label: exirate$/Label: Exirate/' "$folder/changed/dists/stable/InRelease"
  rm "$folder"/changed/dists/stable/Release*
}
