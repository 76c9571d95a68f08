#!/usr/bin/env bash
# embed_page.sh FILE... - the files of the live page as C on stdout: page_files of src/serve/serve.h.
set -eu
type_of() {
    case $1 in
    *.html) echo 'text/html; charset=utf-8' ;;
    *.js) echo 'text/javascript; charset=utf-8' ;;
    *.css) echo 'text/css; charset=utf-8' ;;
    *.svg) echo 'image/svg+xml' ;;
    *) echo "embed_page.sh: $1: of what type?" >&2 && exit 1 ;;
    esac
}
echo '#include "serve/serve.h"'
n=0
for f in "$@"; do
    echo "static const unsigned char file_$n[] = {"
    od -An -v -tu1 -w32 "$f" | sed -e 's/  */,/g' -e 's/^,//' -e 's/$/,/'
    echo '};'
    n=$((n + 1))
done
echo 'const PageFile page_files[] = {'
n=0
for f in "$@"; do
    printf '    { "%s", "%s", file_%d, sizeof file_%d },\n' "$(basename "$f")" "$(type_of "$f")" $n $n
    n=$((n + 1))
done
printf '    { 0, 0, 0, 0 },\n};\n'
