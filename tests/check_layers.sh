#!/usr/bin/env bash
# check_layers.sh [--self-test | FOLDER] - the rules of the layers, on FOLDER/src (default: this tree,
# after the self-test):
#   - base < dev < net < run < cli: a file includes its own layer and those below; cli only jempp.h
#   - headers of device vendors and machine intrinsics only in dev
#   - any other library's header in one file, or one .c and .h pair
#   - no printing and no ending of the process below cli
set -u
here=$(cd "$(dirname "$0")" && pwd)

check() {       # check FOLDER: a line for each offence; 1 where there is one
    (cd "$1" && find src -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort | xargs awk '
    function bad(what) { print FILENAME ":" FNR ": " what; failed = 1 }

    function own_header(path,    to) {
        if (path == "jempp.h") { if (rank[layer] < rank["run"]) bad("jempp.h is for run and cli"); return }
        if (split(path, to, "/") < 2 || !(to[1] in rank)) bad("write \"" path "\" from src/")
        else if (rank[to[1]] > rank[layer]) bad(layer " includes upward: " path)
        else if (layer == "cli" && to[1] != "cli") bad("cli includes jempp.h alone, not " path)
    }

    function library_header(path,    stem) {
        if (path in standard || path ~ /^sys\//) return
        if (path ~ vendor || path ~ machine) { if (layer != "dev") bad("<" path "> belongs in dev"); return }
        stem = FILENAME
        sub(/\.[a-z]+$/, "", stem)
        if (path in user && user[path] != stem) bad("<" path "> is for " user[path] " alone")
        else user[path] = stem
    }

    BEGIN {
        n = split("base dev net run cli", name, " ")
        for (i = 1; i <= n; i++) rank[name[i]] = i
        n = split("assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal " \
                  "stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath " \
                  "threads time uchar wchar wctype " \
                  "dirent dlfcn fcntl fnmatch ftw getopt glob langinfo libgen malloc netdb poll pthread pwd " \
                  "regex sched semaphore spawn strings syslog termios unistd wordexp omp", name, " ")
        for (i = 1; i <= n; i++) standard[name[i] ".h"]
        vendor = "^(dnnl|oneapi/|cuda|cudnn|cublas|cusolver|curand|cooperative_groups|cub/|mma|nvtx|nccl|mpi)"
        machine = "(intrin|arm_neon|arm_sve|cpuid)\\.h$"
    }

    { split(FILENAME, part, "/"); layer = part[2]; gsub(/\r/, "") }
    !(layer in rank) { if (FNR == 1) bad("not in a layer"); next }

    match($0, /^[ \t]*#[ \t]*include[ \t]*"[^"]*"/) { split($0, piece, "\""); own_header(piece[2]); next }
    match($0, /^[ \t]*#[ \t]*include[ \t]*<[^>]*>/) { split($0, piece, "[<>]"); library_header(piece[2]); next }

    {
        gsub(/\\./, ""); gsub(/"[^"]*"/, "\"\""); sub(/\/\/.*/, "")       # no strings, no comments
        line = " " $0
        if (layer != "dev" && line ~ /[^A-Za-z0-9_](_mm[0-9]*_|__m(64|128|256|512)|__builtin_(ia32|cpu))/)
            bad("machine intrinsics belong in dev")
        if (layer != "cli" &&
            (line ~ /[^A-Za-z0-9_](v?printf|puts|putchar|perror|exit|_Exit|_exit|quick_exit|abort|assert) *\(/ ||
             line ~ /[^A-Za-z0-9_](stdout|stderr)[^A-Za-z0-9_]/))
            bad("prints or ends the process below cli")
    }
    END { exit failed }')
}

# expect_bad FILE TEXT WORDS: a tree with that file must fail with those words.
expect_bad() {
    local tree; tree=$(mktemp -d)
    mkdir -p "$tree/src/"{base,dev,net,run,cli}
    printf '#include <png.h>\n#include <stdio.h>\n' >"$tree/src/base/image.c"
    printf '#include <png.h>\nint f(char *s) __attribute__((format(printf, 1, 2)));\n' >"$tree/src/base/image.h"
    printf '#include "net/net.h"\n#include "jempp.h"\n// printf(\nint n = snprintf(s, 9, "exit(");\n' >"$tree/src/run/api.c"
    printf '#include "jempp.h"\nint main(void) { printf("x"); exit(1); }\n' >"$tree/src/cli/main.c"
    if ! check "$tree"; then echo "self-test: a good tree was refused" && rm -rf "$tree" && return 1; fi
    mkdir -p "$(dirname "$tree/$1")" && printf '%b\n' "$2" >>"$tree/$1"
    local said; said=$(check "$tree")
    local rc=$?
    rm -rf "$tree"
    if [ $rc != 0 ] && [[ $said == *"$3"* ]]; then return 0; fi
    echo "self-test: $1 with $2 was not refused for \"$3\": $said"
    return 1
}

self_test() {
    expect_bad src/base/err.c '#include "dev/backend.h"' 'upward' &&
    expect_bad src/dev/ref.c '#include "net/net.h"' 'upward' &&
    expect_bad src/net/net.c '#include "run/data.h"' 'upward' &&
    expect_bad src/cli/main.c '#include "run/data.h"' 'jempp.h alone' &&
    expect_bad src/net/net.c '#include "jempp.h"' 'for run and cli' &&
    expect_bad src/net/net.c '#include "net.h"' 'from src/' &&
    expect_bad src/run/a.c '#include <dnnl.h>' 'belongs in dev' &&
    expect_bad src/run/a.c '#include <cudnn.h>' 'belongs in dev' &&
    expect_bad src/run/a.c '#include <immintrin.h>' 'belongs in dev' &&
    expect_bad src/net/a.c 'x = _mm512_add_ps(a, b);' 'belong in dev' &&
    expect_bad src/run/a.c '  # include <png.h>' 'base/image alone' &&
    expect_bad src/base/a.c 'void f(void) { exit (1); }' 'ends the process' &&
    expect_bad src/run/a.c 'int f(int a) { printf("%d", a); }' 'prints' &&
    expect_bad src/run/a.c 'fputs("\\"", stderr);' 'prints' &&
    expect_bad src/dev/a.cu 'if (bad) abort();' 'ends the process' &&
    expect_bad src/other/a.c 'int x;' 'not in a layer'
}

case ${1-} in
--self-test) self_test ;;
'') self_test && check "$here/.." ;;
*) check "$1" ;;
esac
