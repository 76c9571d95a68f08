#!/usr/bin/env bash
# deb.sh VERSION [PROFILE] - Debian packages of this tree, in build/deb. What debian/ would say a second time is
# filled in from where it is said first: the version, and the packages to build with. DEBFULLNAME and DEBEMAIL
# are the maintainer, as with Debian's own tools.
set -eu
cd "$(dirname "$0")/.."
version=$1 profile=${2-} out=build/deb tree=build/deb/jempp-$1
who="${DEBFULLNAME:-the jempp authors} <${DEBEMAIL:-nobody@jempp.invalid}>"
needs=$(./make.sh --packages | sed 's/  */, /g')

rm -rf "$out"
mkdir -p "$tree"
tar -c --exclude=./build --exclude=./.git --exclude=./runs --exclude=./data . | tar -x -C "$tree"
sed -e "s/@MAINTAINER@/$who/" -e "s/@BUILD_DEPENDS@/$needs/" "$tree/debian/control.in" >"$tree/debian/control"
printf 'jempp (%s) unstable; urgency=medium\n\n  * Built from %s.\n\n -- %s  %s\n' "$version" \
    "$(git describe --always --dirty 2>/dev/null || echo 'a source archive')" "$who" \
    "$(git log -1 --format=%aD 2>/dev/null || date -R)" >"$tree/debian/changelog"
(cd "$tree" && DEB_BUILD_OPTIONS="noautodbgsym parallel=$(nproc)" dpkg-buildpackage -b -us -uc ${profile:+-P"$profile"})
if command -v lintian >/dev/null; then lintian --fail-on error "$out"/*.changes; fi
rm -r "$tree"
ls "$out"/*.deb
