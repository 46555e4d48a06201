#!/usr/bin/env bash
# Every mutant of test/mutants.py still finds its text: the run that breaks them all is for script/test --long.
exec python3 "$(dirname "${BASH_SOURCE[0]}")/../../script/mutations" --check
