#!/usr/bin/env bash
# docs_test.sh - the commands in README.md and docs/ work as they are printed.
#
# Every fenced block names its language. Commands of blocks marked `sh` that begin with jempp, build/jempp or ./make.sh
# are run, in order, in one folder per page. Blocks that cannot be run here say why: `sh data` needs a data set or
# pictures, `sh gpu` a GPU, `sh slow` minutes, `sh install` changes the system; of their jempp commands the options are
# looked up in the help, as are those of the examples in the help. The run that docs/formats.md makes is read by tests/read_run.py, which knows that page only.
set -u
# shellcheck source=tests/script.sh
. "$(dirname "$0")/script.sh"
tree=$(cd "$here/.." && pwd)
mkdir bin help && ln -s "$jempp" bin/jempp
export PATH=$tmp/bin:$PATH JEMPP_MODULE_DIR=${JEMPP_MODULE_DIR:-$(dirname "$jempp")}

# commands PAGE: "LINE<tab>MARK<tab>COMMAND" for each line of an sh block, continued lines joined and comments taken
# away; "LINE<tab>bad<tab>WHY" for a fence that names no language or an unknown mark, and for a table in two pieces.
commands() {
    awk -v OFS='\t' '
    /^ *```/ {
        if (in_block) { in_block = 0; next }
        in_block = 1; mark = $0
        sub(/^ *```/, "", mark)
        if (mark == "") print FNR, "bad", "a fenced block without a language"
        n = split(mark, word, " ")
        is_shell = word[1] == "sh"
        for (i = 2; i <= n; i++)
            if (word[i] !~ /^(data|gpu|slow|install)$/) print FNR, "bad", "unknown mark: " mark
        next
    }
    !in_block && /^\|/ { rows++; if (rows == 2 && !/^\| *:?-/) print FNR, "bad", "a table whose second row is no line of dashes" }
    !/^\|/ { rows = 0 }
    in_block && is_shell {
        if (!more) { at = FNR; text = "" }
        line = $0
        sub(/^ +/, "", line)
        more = sub(/\\$/, "", line)
        text = text line
        if (!more && sub(/^(build\/jempp|jempp|\.\/make\.sh)/, "&", text)) { sub(/ +#.*/, "", text); print at, mark, text }
    }' "$1"
}

# options_exist COMMAND-LINE: every option of it is in the help of its command.
options_exist() {
    local words command option
    read -r -a words <<<"$1"
    command=${words[1]-}
    case ${words[0]}$command in ./make.sh* | *--version | *--help | *jempp) return 0 ;; esac
    [ -s "help/$command" ] || jempp "$command" --help >"help/$command" 2>&1 || { echo "no command '$command'" >out; return 1; }
    for option in $(grep -oE ' --[a-z-]+' <<<"$1"); do
        grep -qE -- "^ +--(\[no-\])?${option#--}( |$)" "help/$command" ||
            grep -qE -- "^ +--\[no-\]${option#--no-}( |$)" "help/$command" ||
            { echo "$command has no option $option" >out; return 1; }
    done
}

try() { (cd "$folder" && bash -c "$1") >out 2>err </dev/null; }
pages=$(cd "$tree" && ls README.md CONTRIBUTING.md SECURITY.md docs/*.md)
for page in $pages; do
    folder=$tmp/$(tr / - <<<"${page%.md}")
    mkdir -p "$folder/build" && ln -s "$jempp" "$folder/build/jempp"
    for name in models tests docs presets tools; do ln -s "$tree/$name" "$folder/$name"; done
    while IFS=$'\t' read -r line mark command; do
        case $mark in
        bad) : >out && bad "$page:$line: $command" ;;
        sh) check "$page:$line: $command" try "$command" ;;
        *) check "$page:$line: the options of: $command" options_exist "$command" ;;
        esac
    done < <(commands "$tree/$page")
done
for command in $(jempp --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    while IFS= read -r line; do
        check "jempp $command --help: the options of: $line" options_exist "$line"
    done < <(jempp "$command" --help | sed -n '/^Examples:/,/^$/s/^  \(jempp [^#]*[^ #]\).*/\1/p')
done
check "a reader written from docs/formats.md reads a run" \
    eval 'python3 "$here/read_run.py" docs-formats/runs/tiny docs-formats/tiny.safetensors "$tree/docs/formats.md" >out'
echo "$passed passed, $failed failed"
[ $failed = 0 ]
