#!/usr/bin/env bash
# embed.sh FILE.conf... - the presets as C on stdout: preset_table of src/conf/config.h.
set -eu
echo '#include "conf/config.h"'
echo 'const Preset preset_table[] = {'
for f in "$@"; do
    printf '    { "%s",\n' "$(basename "$f" .conf)"
    sed -e 's/[\\"]/\\&/g' -e 's/^/      "/' -e 's/$/\\n"/' "$f"
    echo '    },'
done
printf '    { 0, 0 },\n};\n'
