#!/usr/bin/env bash
# arm64.sh ROOT - the libraries of Debian for arm64, unpacked into ROOT for the cross compiler and qemu. Nothing is
# installed and no rights are needed: apt-get is told of an empty arm64 machine, and only downloads.
set -eu
packages="libc6-dev libgcc-12-dev libgomp1 libpng-dev libjpeg-dev libwebp-dev zlib1g-dev libarchive-dev
          libcjson-dev libcurl4-openssl-dev libcmocka-dev libdnnl-dev"
[ ! -e "$1/done" ] || exit 0
mkdir -p "$1" && cd "$1"
mkdir -p apt/lists/partial apt/archives/partial && : >apt/status
apt() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::status="$PWD/apt/status" \
        -o Dir::State::lists="$PWD/apt/lists" -o Dir::Cache="$PWD/apt" -o Debug::NoLocking=1 "$@"
}
echo "fetching libraries for arm64"
apt update
# shellcheck disable=SC2086
apt install -y --no-install-recommends --download-only $packages >/dev/null
for p in apt/archives/*.deb; do dpkg -x "$p" .; done
rm -r apt
: >done
