#!/usr/bin/env bash
# make.sh [target or VARIABLE=value ...] - installs the Debian packages that are missing for these
# targets, then calls make with them. Without apt-get it lists the required packages instead.
# make.sh --packages prints the packages that building needs.
set -eu
cd "$(dirname "$0")"

packages="gcc make pkg-config git libdnnl-dev libpng-dev libjpeg-dev libwebp-dev zlib1g-dev
          libarchive-dev libcjson-dev libcurl4-openssl-dev libcairo2-dev libmicrohttpd-dev"
# shellcheck disable=SC2086
if [ "${1-}" = --packages ]; then echo $packages && exit; fi
for target in "$@"; do
    case $target in
    test | asan | poison | cov | run | tests | bundle)
        packages="$packages libcmocka-dev python3 python3-numpy python3-venv libopenmpi-dev openmpi-bin" ;;
    page) packages="$packages python3 chromium" ;;
    wheel) packages="$packages python3" ;;
    fuzz) packages="$packages clang libclang-rt-dev python3" ;;
    arm64) packages="$packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user" ;;
    lint | format) packages="$packages clang libomp-dev clang-format clang-tidy cppcheck" ;;
    demo) packages="$packages dataset-fashion-mnist" ;;
    deb) packages="$packages debhelper lintian" ;;
    bench-torch) packages="$packages python3 python3-torch" ;;
    esac
done

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

if command -v apt-get >/dev/null; then
    missing=
    for p in $packages; do installed "$p" || missing="$missing $p"; done
    if [ -n "$missing" ]; then
        echo "installing$missing"
        as_root=; [ "$(id -u)" = 0 ] || as_root=sudo
        # shellcheck disable=SC2086
        $as_root apt-get update -qq &&
            $as_root env DEBIAN_FRONTEND=noninteractive \
                apt-get install -y -qq --no-install-recommends $missing >/dev/null ||
            echo "installing packages failed; building with what is installed"
    fi
else
    echo "no apt-get on this system; the required packages, by their names in Debian:" $packages
fi
exec make -j"$(nproc)" "$@"
