#!/usr/bin/env bash
# format.sh [--fix] FILE... - compares C files with what clang-format makes of them, but for the number
# of spaces between words: columns set by hand are wanted. --fix replaces the lines that differ.
set -u
fix=
if [ "${1-}" = --fix ]; then fix=1 && shift; fi
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT

# clang-format has no rule for pragmas: they get the indentation of what follows.
indent_pragmas() {
    awk '/^ *#pragma/ { sub(/^ */, ""); held = held $0 "\n"; next }
         { match($0, /^ */); pad = substr($0, 1, RLENGTH); n = split(held, line, "\n"); held = ""
           for (i = 1; i < n; i++) print pad line[i]
           print }'
}
one_space() { sed -E 's/([^ ]) +/\1 /g' "$1"; }

rc=0
for f in "$@"; do
    clang-format "$f" | indent_pragmas >"$tmp/theirs"
    one_space "$f" >"$tmp/a"
    one_space "$tmp/theirs" >"$tmp/b"
    if [ ! $fix ]; then
        diff -U0 --label "$f" --label "$f, formatted" "$tmp/a" "$tmp/b" || rc=1
    elif ! cmp -s "$tmp/a" "$tmp/b"; then
        diff --unchanged-line-format=$'mine %dn\n' --new-line-format=$'theirs %dn\n' --old-line-format= \
            "$tmp/a" "$tmp/b" >"$tmp/which"
        awk -v which="$tmp/which" 'FNR == 1 { file++ } { line[file, FNR] = $0 }
            END { while ((getline < which) > 0) print line[$1 == "mine" ? 1 : 2, $2] }' \
            "$f" "$tmp/theirs" >"$tmp/new" && cat "$tmp/new" >"$f"
    fi
done
exit $rc
