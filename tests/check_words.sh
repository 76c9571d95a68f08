#!/usr/bin/env bash
# check_words.sh [--self-test | FOLDER] - the wording of what users read, on FOLDER (default: this tree, after the
# self-test):
#   - phrases that we no longer use (the table below) occur neither in the documentation, nor in presets, headers, the
#     live page, the Python package, nor in string literals of src/
#   - lines of Markdown have at most 120 columns, outside tables and fenced blocks; README.md at most 150 lines
#   - links between pages lead to files that exist; docs/tour.md has a row for every folder of src/, with
#     files that exist; CITATION.cff has the version
set -u
here=$(cd "$(dirname "$0")" && pwd)

# An extended regular expression, a tab, what to write instead.
phrases() {
    cat <<'END'
asked for wrongly	usage error
\ba (line|row|column|page|curve|grid|colour|curve|file|picture|subfolder) an? (class|step|score|attack|picture|set|epoch|run|command|page|device|format|layer)\b	one line per step
\bone an? class\b	one per class
(iterations?|steps?|minutes|images|milliseconds|ms|pixels|moves|points|GMAC|lines?) an? (second|iteration|epoch|step|image|side|gradient|class)\b	per second, per side
\b(goes|go|going|went|gone) back\b	rolls back to its checkpoint
\b(goes|go|going|went|gone) on (with|at|from|where|bit|on)\b	resumes, continues
\btrouble\b	divergence, problem, error
\bjudge[sd]?\b	evaluate
\b(is|are|was|be|been|not) told\b	say who reports what
\btell(s)? (the|a|an|such|it|that|how|where|of)\b	shows, reports, distinguishes
\b(is|are|be) worth\b	metrics, quality
\bnot chosen\b	uncurated
left the road|(go|goes|gone|going|went) astray	diverged
\b(run|runs|training) (was|were|is|be) lost\b	diverged
\bother images\b	out-of-distribution (OOD) images
kinds? of things|of the known kind|how many kinds	classes, in distribution
\bso many\b	N, a number
made[- ]up\b	synthetic, generated
\bmis-?read\b	misclassified
[Ff]ew mistakes	too few errors
less sure|how sure	confidence, underconfident
\bspoil(t|s|ed)?\b	corrupted, clobbers
\bby heart\b	memorised
\b(leap|leaps|leapt|leaping)\b	overshoots
chains? (are|were|was|is|stay|stays|stayed) behind	f(x) - f(x_q) exceeded --px-margin
\bfrom nothing\b	from scratch
\banew\b	again
\b(to|and) hand on\b	to share, exported
\bunharmed\b	without attack
\bsees? to (it|that)\b	checks, ensures
\bcomes? along\b	included
\bocts?\b|\bslabs?\b	8-channel vectors; tiles
nothing of the subject	domain-independent utilities
\bfilter turned\b|\bturned filter\b	rotated filter (rot180)
what (it|they|he) (draws|draw|says|say)\b	samples; the output
\bcannot be (gone|had)\b	cannot be resumed
\bas square as it gets\b	nearly square
\bwhat computes\b	device
\bon the way up\b	in the backward pass
\bsame bits\b	bit-for-bit reproducible
END
}

# Lines that a check leaves out become empty, so that line numbers stay.
prose() { awk '/^ *```/ { fence = !fence; print ""; next } fence { print ""; next } { print }' "$1"; }
no_code() { sed 's/`[^`]*`/`code`/g'; }
strings() {     # string literals of a C file; of other files, comments too
    case $1 in
    *.h | *.cuh | *.py | *.html | *.js) cat "$1" ;;
    *) sed -E '/^[ \t]*#[ \t]*include/s/.*//; s/^[ \t]*\/\/.*//' "$1" | awk '{
           line = ""
           while (match($0, /"([^"\\]|\\.)*"/)) {
               text = substr($0, RSTART, RLENGTH)
               if (text ~ / /) line = line text " "      # a single word is a key, not prose
               $0 = substr($0, RSTART + RLENGTH)
           }
           print line }' ;;
    esac
}

check() {       # check FOLDER: a line for each offence; 1 if there is one
    local file list bad=0 phrase instead link target
    cd "$1" || return 1
    list=$(mktemp)
    phrases | cut -f1 >"$list"
    # shellcheck disable=SC2013,SC2016
    for file in $(find . -maxdepth 4 -name '*.md' ! -path './build/*' ! -path './.git/*' | sort
        find presets src include python/jempp -regex '.*\.\(c\|cu\|h\|cuh\|conf\|html\|js\|py\)' 2>/dev/null | sort); do
        case $file in
        *.md) prose "$file" ;;
        *.conf) cat "$file" ;;
        *) strings "$file" ;;
        esac >"$list.text"
        while IFS= read -r link; do
            phrase=$(cut -d: -f2- <<<"$link")
            instead=$(phrases | while IFS=$'\t' read -r what better; do
                grep -qE -- "$what" <<<"$phrase" && echo "$better" && break; done)
            echo "$file:${link%%:*}: write '$instead': $(cut -c1-100 <<<"$phrase")"
            bad=1
        done < <(no_code <"$list.text" | grep -nE -f "$list")
        case $file in *.md) ;; *) continue ;; esac
        while IFS= read -r link; do
            echo "$file:${link%%:*}: more than 120 columns" && bad=1
        done < <(LC_ALL=C.UTF-8 grep -nE '^[^|].{120,}$' "$list.text")
        for link in $(grep -oE '\]\([^)#]+' "$list.text" | cut -c3- | grep -vE '^(https?|mailto):'); do
            target=$(dirname "$file")/$link
            [ -e "$target" ] || { echo "$file: a link to $link, which does not exist" && bad=1; }
        done
    done
    rm -f "$list" "$list.text"
    [ ! -f README.md ] || [ "$(wc -l <README.md)" -le 150 ] || { echo "README.md: more than 150 lines" && bad=1; }
    for link in $(ls -d src/*/ 2>/dev/null); do               # every layer has a row, whose files exist
        [ -f docs/tour.md ] || break
        target=$(grep -F "| \`$link\` |" docs/tour.md) || { echo "docs/tour.md: no row for $link" && bad=1 && continue; }
        for file in $(cut -d'|' -f3 <<<"$target" | grep -oE '`[a-z0-9_*]+`' | tr -d '`'); do
            compgen -G "$link$file.*" >/dev/null || { echo "docs/tour.md: $link has no $file" && bad=1; }
        done
    done
    if [ -f CITATION.cff ] && [ -f include/jempp.h ]; then
        link=$(sed -n 's/^.define JEMPP_VERSION "\(.*\)".*/\1/p' include/jempp.h)
        grep -qx "version: $link" CITATION.cff || { echo "CITATION.cff: its version is not $link" && bad=1; }
    fi
    return $bad
}

self_test() {   # each rule finds what it is for
    local tmp n=0
    tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' RETURN
    expect() {  # expect NAME FILE TEXT: FILE with TEXT is refused
        rm -rf "$tmp/t" && mkdir -p "$tmp/t/docs" "$tmp/t/src/base" && echo "\`x\`" >"$tmp/t/docs/tour.md"
        printf '%s\n' "$3" >"$tmp/t/$2"
        (check "$tmp/t") >/dev/null && { echo "self-test: not found: $1" && n=1; }
    }
    expect "a phrase in a page" README.md "after some trouble it ran"
    expect "a phrase in a string" src/base/x.c 'f("the run goes back");'
    expect "a phrase in a header" src/base/x.h '// the run goes back'
    expect "a long line" README.md "$(printf 'x%.0s' {1..121})"
    expect "a long page" README.md "$(seq 151)"
    expect "a dead link" docs/a.md "see [b](b.md)"
    expect "a layer that the tour does not name" src/base/y.c "int y;"
    expect "a file that is gone" docs/tour.md '| `src/base/` | `gone` |'
    rm -rf "$tmp/t" && mkdir -p "$tmp/t/src/base" && echo '// the run goes back' >"$tmp/t/src/base/x.c"
    (check "$tmp/t") || { echo "self-test: a comment inside src was taken for a string" && n=1; }
    return $n
}

case ${1-} in
--self-test) self_test ;;
"") self_test && check "$here/.." ;;
*) check "$1" ;;
esac
