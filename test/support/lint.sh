#!/usr/bin/env bash
# What reads the C sources without running them: lint.sh format | cppcheck | tidy, and the folder of what they remember.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
logs=$2
mkdir -p "$logs"

check_format() {
    local unformatted
    unformatted=$(find src test bench -name '*.[ch]' | sort | xargs clang-format --dry-run 2>&1 |
        sed -nE 's/^([^:]+):[0-9]+:.*/\1/p' | sort -u) || return 1
    if [[ -n $unformatted ]]; then
        sed 's/^/to do: clang-format -i /' <<<"$unformatted"
        return 1
    fi
}

check_cppcheck() {
    mkdir -p "$logs/cppcheck"
    cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,performance,portability --inline-suppr \
        --suppressions-list=.cppcheck-suppressions --cppcheck-build-dir="$logs/cppcheck" \
        -D_GNU_SOURCE '-DFANTAIL_VERSION="0"' -I src src
}

# A file that was clean, with these headers and these checks, is clean: it is not looked at again.
tidy_one() {
    local stamp
    stamp=$logs/tidy/$(cat "$1" - <<<"$tidy_state" | sha256sum | cut -c1-32)
    if [[ ! -e $stamp ]]; then
        clang-tidy -p build-asan --quiet "$1" 2>/dev/null && touch "$stamp"
    fi
}

# Shows each finding once, however many files include the header that it is in; the whole story is in tidy/findings.
check_tidy() {
    local code=0
    mkdir -p "$logs/tidy"
    tidy_state=$(find src -name '*.h' | sort | xargs cat .clang-tidy meson.build | sha256sum)
    export tidy_state logs
    export -f tidy_one
    find src -name '*.c' | sort | xargs -I{} bash -c 'tidy_one "$1"' tidy {} >"$logs/tidy/findings" || code=$?
    sed -nE 's|^.*\.\./(src/.*(error\|warning): )|\1|p' "$logs/tidy/findings" | sort -u
    return "$code"
}

"check_$1"
