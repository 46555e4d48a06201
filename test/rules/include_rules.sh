#!/usr/bin/env bash
# The house rules that a compiler does not know: which folder may include which, opening comments, names, sizes.
# Prints TAP.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

number=0 bad=0
# check NAME: reads complaints from stdin; none is good.
check() {
    local name=$1 complaints
    complaints=$(cat)
    number=$((number + 1))
    if [[ -z $complaints ]]; then
        echo "ok $number - $name"
    else
        bad=1
        echo "not ok $number - $name"
        sed 's/^/#   /' <<<"$complaints"
    fi
}

# "FILE TARGET" for every #include "folder/…" of ours under the given folders.
includes() {
    find "$@" -name '*.[ch]' | sort | xargs -r grep -HoE '^[[:space:]]*#[[:space:]]*include "[^"]+"' |
        sed -E 's/^([^:]+):.*"([^"]+)"$/\1 \2/'
}

# only FOLDER ALLOWED…: FOLDER includes nothing but headers of these folders.
only() {
    local folder=$1
    shift
    local allowed
    allowed=$(IFS='|'; echo "$*")
    includes "src/$folder" | awk -v allowed="^($allowed)/" '$2 !~ allowed { print $1 " includes " $2 }'
}

check 'base includes only base' < <(only base base)
check 'port includes only base and port' < <(only port base port)
check 'model includes only base, port and itself' < <(only model base port model)
check 'pipe includes only base, port and itself' < <(only pipe base port pipe)

# Each driver's header is named by its own folder and by cmd/, where the parts are put together.
check 'only cmd names a concrete driver' < <(includes src | awk '
    match($2, /^(db|view|bus)\//) {
        home = "src/" substr($2, 1, RLENGTH)
        if (index($1, home) != 1 && index($1, "src/cmd/") != 1) print $1 " names the driver " $2
    }')

# What lies below never knows what stands on it.
check 'no folder includes one of a later layer' < <(includes src | awk '
    BEGIN {
        count = split("base port model pipe db view bus net ops api cmd", layers, " ")
        for (i = 1; i <= count; i++) rank[layers[i]] = i
    }
    {
        split($1, from, "/")
        split($2, to, "/")
        if (to[1] in rank && rank[to[1]] > rank[from[2]]) print $1 " includes " $2
    }')

check 'include paths start at src/' < <(includes src | while read -r file target; do
    [[ -f src/$target ]] || grep -qsF "${target##*/}" "$(dirname "$file")/meson.build" || echo "$file includes $target"
done)

check 'every source file opens with a comment' < <(find src test -name '*.[ch]' | sort | while read -r file; do
    [[ $(head -c 2 "$file") == '/*' ]] || echo "$file"
done)

check 'every header has #pragma once' < <(find src -name '*.h' | sort | xargs grep -L '^#pragma once$')

check 'no file is called util, common, helper, manager or misc' < <(
    find src test bench script -type f | grep -v __pycache__ |
        grep -Ei '(^|[/_.-])(utils?|common|helpers?|managers?|misc)([/_.-]|$)')

# Columns, not bytes: continuation bytes of UTF-8 take no place.
check 'lines have at most 100 columns' < <(find src test -name '*.[ch]' | sort | LC_ALL=C xargs awk '
    { line = $0; gsub(/[\200-\277]/, "", line); if (length(line) > 100) print FILENAME ":" FNR ": " length(line) }')

check 'no tabs, no space at the end of a line' < <(
    find src test -name '*.[ch]' | sort | xargs grep -nE '[[:space:]]+$|	' | cut -c1-80)

check 'nothing is left to do in a comment' < <(
    find src test -name '*.[ch]' | sort | xargs grep -nwE 'TODO|FIXME|XXX|HACK')

check 'no file is longer than 800 lines' < <(
    find src test -name '*.c' -print0 | sort -z | xargs -0 -n1 wc -l | awk '$1 > 800 { print $2 ": " $1 " lines" }')

echo "1..$number"
exit "$bad"
