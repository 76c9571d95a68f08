#!/usr/bin/env bash
# check_layers.sh [--self-test | FOLDER] - the rules of the layers, on FOLDER/src (default: this tree,
# after the self-test):
#   - each folder of src/ is a room; the rooms are ranked, bottom up: $rooms below
#   - a file includes its own room and those below it; api and cli alone include jempp.h, and cli
#     includes nothing else of ours
#   - a function calls its own room and those below it (nm on the objects in FOLDER/build/release)
#   - headers of device vendors and machine intrinsics only in dev
#   - any other library's header in one file, or one .c and .h pair
#   - no printing and no ending of the process below cli
set -u
here=$(cd "$(dirname "$0")" && pwd)
rooms="base dev net conf data jem run report eval serve api cli"

# check_calls FOLDER: a line for each call from a room to one above it; 1 where there is one. Modules
# (cpu, cuda, plot, serve, mpi) are loaded at run time and bring their own copies, so they are left out.
check_calls() {
    local room object
    for room in $rooms; do
        for object in "$1"/build/release/"$room"/*.o; do
            [ -f "$object" ] || continue
            nm "$object" | awk -v room="$room" -v object="${object##*/}" 'NF >= 2 { print room, object, $(NF - 1), $NF }'
        done
    done | awk -v rooms="$rooms" '
    BEGIN { n = split(rooms, name, " "); for (i = 1; i <= n; i++) rank[name[i]] = i }
    $3 ~ /^[TDBRVW]$/ { if (!($4 in home) || rank[$1] < rank[home[$4]]) home[$4] = $1 }
    $3 == "U" { user[++calls] = $1; object[calls] = $2; called[calls] = $4 }
    END {
        for (i = 1; i <= calls; i++)
            if (called[i] in home && rank[home[called[i]]] > rank[user[i]]) {
                print user[i] "/" object[i] " calls upward: " called[i] " of " home[called[i]]
                failed = 1
            }
        exit failed
    }'
}

check() {       # check FOLDER: a line for each offence; 1 where there is one
    (cd "$1" && find src -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort | xargs awk -v rooms="$rooms" '
    function bad(what) { print FILENAME ":" FNR ": " what; failed = 1 }

    function own_header(path,    to) {
        if (path == "jempp.h") { if (rank[layer] < rank["api"]) bad("jempp.h is for api and cli"); return }
        if (split(path, to, "/") < 2 || !(to[1] in rank)) bad("write \"" path "\" from src/")
        else if (rank[to[1]] > rank[layer]) bad(layer " includes upward: " path)
        else if (layer == "cli" && to[1] != "cli") bad("cli includes jempp.h alone, not " path)
    }

    function library_header(path,    stem) {
        if (path in standard || path ~ /^(sys|arpa|netinet)\//) return
        if (path ~ vendor || path ~ machine) { if (layer != "dev") bad("<" path "> belongs in dev"); return }
        stem = FILENAME
        sub(/\.[a-z]+$/, "", stem)
        if (path in user && user[path] != stem) bad("<" path "> is for " user[path] " alone")
        else user[path] = stem
    }

    BEGIN {
        n = split(rooms, name, " ")
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
    mkdir -p "$tree/src/"{base,dev,net,run,api,cli}
    printf '#include <png.h>\n#include <stdio.h>\n' >"$tree/src/base/image.c"
    printf '#include <png.h>\nint f(char *s) __attribute__((format(printf, 1, 2)));\n' >"$tree/src/base/image.h"
    printf '#include "net/net.h"\n#include "jempp.h"\n// printf(\nint n = snprintf(s, 9, "exit(");\n' >"$tree/src/api/api.c"
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

# A declaration is enough to call upward without an include: the objects show it.
expect_bad_call() {
    local tree said rc; tree=$(mktemp -d)
    mkdir -p "$tree/build/release/"{jem,run}
    compile() { echo "$2" | ${CC:-cc} -x c -c - -o "$tree/build/release/$1"; }
    compile jem/train.o 'int trainer_step(void) { return 1; }'
    compile run/fit.o 'int trainer_step(void); int fit_loop(void) { return trainer_step(); }'
    if ! check_calls "$tree"; then echo "self-test: a downward call was refused" && rm -rf "$tree" && return 1; fi
    compile jem/replay.o 'int fit_loop(void); int replay_take(void) { return fit_loop(); }'
    said=$(check_calls "$tree"); rc=$?
    rm -rf "$tree"
    [ $rc != 0 ] && [[ $said == *'jem/replay.o calls upward: fit_loop of run'* ]] && return 0
    echo "self-test: an upward call was not found: $said"
    return 1
}

self_test() {
    expect_bad src/base/err.c '#include "dev/backend.h"' 'upward' &&
    expect_bad src/dev/ref.c '#include "net/net.h"' 'upward' &&
    expect_bad src/net/net.c '#include "data/data.h"' 'upward' &&
    expect_bad src/jem/train.c '#include "run/fit.h"' 'upward' &&
    expect_bad src/cli/main.c '#include "data/data.h"' 'jempp.h alone' &&
    expect_bad src/run/fit.c '#include "jempp.h"' 'for api and cli' &&
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
    expect_bad src/other/a.c 'int x;' 'not in a layer' &&
    expect_bad_call
}

case ${1-} in
--self-test) self_test ;;
'') self_test && check "$here/.." && check_calls "$here/.." ;;
*) check "$1" && check_calls "$1" ;;
esac
