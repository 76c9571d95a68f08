#!/usr/bin/env bash
# check_install.sh - an installed jempp: it finds its modules, also where its tree was moved; programs of
# others are built with what pkg-config says, against names of jempp.h alone; uninstall leaves nothing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
prefix=$tmp/prefix
unset JEMPP_MODULE_DIR
bad() { echo "FAILED: $*" && exit 1; }

[ -d build/release ] || bad "no build/release here: run make first, or make test TESTS=check_install"

# The build that is here, with another place compiled in, beside it.
mkdir "$tmp/bin"
cp -a build/release "$tmp/objects"
to() { make --no-print-directory -s "$@" OBJ="$tmp/objects" BIN="$tmp/bin" PREFIX="$prefix" >/dev/null; }
to install
jempp=$prefix/bin/jempp
cpu=$(ls "$prefix"/lib/jempp-*/jempp-cpu.so 2>/dev/null || true)
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig

# ---- names
api=$(sed -n 's/^JEMPP_API.*[ *]\(jempp_[a-z_]*\)(.*/\1/p' include/jempp.h | sort)
shared=$(nm -D --defined-only "$prefix/lib/libjempp.so" | awk '{ print $3 }' | sort)
static=$(nm -g --defined-only "$prefix/lib/libjempp.a" | awk 'NF == 3 { print $3 }' | sort)
[ -n "$api" ] && [ "$shared" = "$api" ] || bad "libjempp.so: $(diff <(echo "$api") <(echo "$shared"))"
[ "$static" = "$api" ] || bad "libjempp.a: $(diff <(echo "$api") <(echo "$static"))"

# ---- programs of others
build() {       # build PROGRAM FILE.c [FLAG...]
    # shellcheck disable=SC2046
    ${CC:-cc} -std=c11 -O1 -Wall -Wextra -Wpedantic -Werror "$2" "${@:3}" $(pkg-config --cflags --libs jempp) \
        -Wl,--as-needed -Wl,-rpath,"$prefix/lib" -o "$tmp/$1"
}
sed -n '/^```c$/,/^```$/{/^```/!p}' docs/install.md >"$tmp/ten.c"
cat >"$tmp/devices.c" <<'END'
#include <jempp.h>
int main(void) { return puts(jempp_devices()) < 0; }
END
build example docs/example.c
build ten "$tmp/ten.c"
build devices "$tmp/devices.c"
# shellcheck disable=SC2046
build devices-static "$tmp/devices.c" "$prefix/lib/libjempp.a" $(pkg-config --static --libs jempp | sed 's/-ljempp//')
ldd "$tmp/devices" | grep -q "libjempp.so.* => $prefix/lib/" || bad "not linked with the shared library"
if ldd "$tmp/devices-static" | grep -q libjempp; then bad "linked with the shared library"; fi
for program in "$tmp/devices" "$tmp/devices-static" "$jempp --version"; do
    $program >"$tmp/out"
    [ -z "$cpu" ] || grep -q '^cpu .*oneDNN' "$tmp/out" || bad "$program: $(cat "$tmp/out")"
    grep -q '^ref ' "$tmp/out" || bad "$program: $(cat "$tmp/out")"
done

"$jempp" train --data shapes --side 8 --model wrn-10-1 --batch 10 --buffer 40 --train-images 200 --valid-images 40 \
    --steps 2 --iterations 2 --threads 1 --out "$tmp/run" >/dev/null 2>&1
"$jempp" sample "$tmp/run" --from centres --class star --zoom 1 --out "$tmp/star.png" >/dev/null
class=$("$jempp" predict "$tmp/run" "$tmp/star.png" | awk 'NR == 2 { print $2 }')
"$tmp/example" "$tmp/run" "$tmp/star.png" "$tmp/four.png" >"$tmp/out"
cat "$tmp/out"
grep -qE "star.png: $class, p\(y\|x\) = 0\.[0-9]{4}, log p\(x\) \+ c = [0-9.-]+$" "$tmp/out"
grep -q 'four.png: 4 samples' "$tmp/out"
[ "$(head -c 4 "$tmp/four.png" | tail -c 3)" = PNG ]
[ "$("$tmp/ten" "$tmp/run" "$tmp/star.png")" = "$class" ] || bad "the program in docs/install.md"
for program in "$tmp/example" "$tmp/ten"; do
    if "$program" "$tmp/nothing" a b >"$tmp/out" 2>&1; then bad "a model that is not there was opened"; fi
    grep -qE 'nothing|usage' "$tmp/out"
done

# ---- threads that wait sleep soon: in the program and in those of others, which libgomp is not linked to
for program in "$jempp predict" "$tmp/ten"; do
    env -u OMP_WAIT_POLICY OMP_DISPLAY_ENV=verbose $program "$tmp/run" "$tmp/star.png" 2>&1 | \
        grep -q "GOMP_SPINCOUNT = '2000'" || bad "$program: OpenMP's threads spin for long"
    env OMP_WAIT_POLICY=active OMP_DISPLAY_ENV=verbose $program "$tmp/run" "$tmp/star.png" 2>&1 | \
        grep -q "OMP_WAIT_POLICY = 'ACTIVE'" || bad "$program: the environment was not heeded"
done
if ldd "$jempp" "$prefix/lib/libjempp.so" | grep libgomp; then bad "linked with libgomp"; fi

# ---- where there is no libgomp, loops run on one thread
cat >"$tmp/without.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
void *dlopen(const char *name, int flags) {
    if (name && strstr(name, "libgomp")) return NULL;
    return ((void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen"))(name, flags);
}
END
${CC:-cc} -shared -fPIC "$tmp/without.c" -o "$tmp/without.so"
mkdir "$tmp/stars" && for i in 1 2 3; do cp "$tmp/star.png" "$tmp/stars/$i.png"; done
predict() { "$jempp" predict "$tmp/run" "$tmp/stars" --device ref --out "$tmp/$1" >/dev/null; }
predict many.csv
LD_PRELOAD=$tmp/without.so predict one.csv
cmp "$tmp/many.csv" "$tmp/one.csv" || bad "other scores without libgomp"

# ---- without DEVICE a bundle has all modules that are installed
modules() { grep -o 'jempp-[a-z]*\.so' | sort -u; }
bundled=$(make --no-print-directory -n bundle 2>&1 | modules) || bad "make bundle has no modules"
[ "$bundled" = "$(find "$prefix"/lib/jempp-* -name '*.so' | modules)" ] || bad "a bundle has only" $bundled

# ---- away with it, and what was installed elsewhere is found where it lies
to uninstall
[ -z "$(find "$prefix" ! -type d)" ] || bad "left: $(find "$prefix" ! -type d)"
[ -z "$(find "$prefix" -name '*jempp*')" ] || bad "left: $(find "$prefix" -name '*jempp*')"
rm -r "$prefix"
to install DESTDIR="$tmp/moved"
[ ! -e "$prefix" ] || bad "DESTDIR was not heeded"
[ -z "$cpu" ] || "$tmp/moved$prefix/bin/jempp" --version | grep -q '^cpu .*oneDNN' || bad "a moved tree"
echo "1 passed, 0 failed"
