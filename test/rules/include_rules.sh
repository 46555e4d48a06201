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

# Which folder may include which, besides itself. Every folder of src/ has a row; files lie only in folders with a row of
# their own or under one. Only node, and the programs above it, name a driver: db, view, bus, signal, blob, channel.
layers='
base
port          base
model         base port
pipe          base port
db            base port
view          base port
bus           base port
signal        base port view
blob          base port
channel       base port
net           base
ops           base
live          base port model net
api/render    base port model pipe ops
api/edge      base port model pipe net ops
api/resource  base port model pipe net ops live api/edge api/render
node          base port model pipe db view bus signal blob channel net ops live api/edge api/resource
cmd           base port net ops db node
bench         base port model pipe db view bus signal net ops node cmd
demo          base model ops cmd
plan          base ops cmd
'
# Prints "FILE WORD…": the row of each source file, or nothing after it when there is none.
with_row() {
    awk -v layers="$layers" '
        BEGIN {
            count = split(layers, line, "\n")
            for (i = 1; i <= count; i++) if (split(line[i], word, " ") > 0) row[word[1]] = " " line[i] " "
        }
        {
            folder = $1
            sub(/^src\//, "", folder)
            do sub(/\/?[^\/]*$/, "", folder); while (folder != "" && !(folder in row))
            print $1 "|" $2 "|" row[folder]
        }'
}

check 'every folder of src/ has a row that says what it may include' < <(
    find src -mindepth 2 -name '*.[ch]' | sort | with_row | awk -F'|' '$3 == "" { print $1 }')

check 'every folder includes only what its row allows' < <(includes src | with_row | awk -F'|' '
    $3 != "" && $2 ~ /\// {
        allowed = 0
        count = split($3, word, " ")
        for (i = 1; i <= count; i++) if (index($2, word[i] "/") == 1) allowed = 1
        if (!allowed) print $1 " includes " $2 ", which" " the row of" $3 "does not name"
    }')

# Everything that differs between routes is a column of their table: the dispatcher knows no handler and no noun of them.
dispatcher=(src/api/edge/{dispatch,admission,run,repeat,answer,forward}.c src/api/edge/{request,dispatcher,forward}.h)
handlers=$(grep -oE '^ROUTE\(\w+, \w+, "[^"]+", \w+' src/api/edge/routes.def | sed 's/.* //' | paste -sd'|')
nouns='posts?|groups?|messages?|comments?|feeds?|inbox(es)?|followers?|chats?|members?|deliver(y|ies)|replays?|rebuilds?'
check 'the dispatcher names no resource' < <(
    [[ -n $handlers ]] || echo 'no handler was found in routes.def'
    grep -nEw "($handlers|($nouns)(_[a-z_]+)?)" "${dispatcher[@]}"
    grep -nE '#include "api/(resource|render)/' "${dispatcher[@]}"
)
# What the model finds is drawn by api/render.
check 'model renders nothing' < <(includes src/model | awk '$2 == "base/json_out.h" { print $1 " includes " $2 }')

# The engine knows rules and lanes as rows of tables, not by name.
events=$(sed -n '/^#define EVENT_TABLE(X)/,/[^\\]$/p' src/port/event.h | grep -oE 'X\([A-Z_]+,' |
    sed -E 's/X\(([A-Z_]+),/EVENT_\1/')
lanes=$(sed -nE 's/^LANE\(([A-Z_]+),.*/LANE_\1/p' src/port/lanes.def)
check 'pipe names no event type and no lane' < <(
    [[ $(wc -l <<<"$events") -gt 20 ]] || echo "the table of events was not found in port/event.h"
    [[ $(wc -l <<<"$lanes") -gt 8 ]] || echo "the table of lanes was not found in port/lanes.def"
    grep -nwE "$(paste -sd'|' <<<"$events"$'\n'"$lanes")" src/pipe/*.[ch])
# A wrapper that asks whether its driver has an operation has found an optional one.
check 'no operation of a port is optional' < <(
    grep -nE '\w+->ops->\w+( \?| &&| \|\||\)|;|,)' -r src --include='*.[ch]')
check 'port holds no SQL' < <(grep -nE '"(SELECT|INSERT|UPDATE|DELETE) ' src/port/*.c)

check 'include paths start at src/' < <(includes src | while read -r file target; do
    [[ -f src/$target ]] || grep -qsF "${target##*/}" "$(dirname "$file")/meson.build" || echo "$file includes $target"
done)

check 'every source file opens with a comment' < <(find src test -name '*.[ch]' | sort | xargs awk '
    FNR == 1 && !/^\/\*/ { print FILENAME }')

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
    find src test -name '*.c' | sort | xargs wc -l | awk '$1 > 800 && $2 != "total" { print $2 ": " $1 " lines" }')

echo "1..$number"
exit "$bad"
