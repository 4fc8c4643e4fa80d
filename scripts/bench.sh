#!/bin/bash
# SPDX-License-Identifier: MIT
#
# make bench: the performance goals as ratios to floors measured in the same run.
# Names of rows run those alone; scripts/bench.sh --help lists them.
exec python3 "$(dirname "$0")/bench.py" "$@"
