#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The test runner itself: whatever way a test program goes wrong, it is counted as a failure.
# Speaks TAP.
set -uo pipefail

work=$(mktemp -d "${TMPDIR:-/tmp}/gkv-runner-XXXXXX")
trap 'rm -rf "$work"' EXIT
count=0
failed=0

# program NAME: a test script from stdin.
program()
{
	{ echo '#!/bin/bash'; cat; } >"$work/$1"
	chmod +x "$work/$1"
}

# totals NAME PASSED FAILED SKIPPED WHAT: what the runner makes of the script.
totals()
{
	local output status want="$2 passed, $3 failed, $4 skipped"

	count=$((count + 1))
	rm -f "$work/results"
	python3 scripts/run-tests.py run --results "$work/results" --suite self --build "$work" \
		--timeout 1 "$work/$1" >/dev/null 2>&1
	output=$(env -u GKV_LONG python3 scripts/run-tests.py summary --results "$work/results")
	status=$?
	if [ "$(tail -n 1 <<<"$output")" = "$want" ] &&
			[ $((status != 0)) -eq $(($3 > 0 || $2 == 0)) ]; then
		echo "ok $count - $5"
	else
		echo "not ok $count - $5"
		echo "# want $want"
		awk '{ print "# " $0 }' <<<"$output"
		failed=1
	fi
}

# shown LINE WHAT: the summary of the script before has this line.
shown()
{
	local output

	count=$((count + 1))
	output=$(python3 scripts/run-tests.py summary --results "$work/results")
	if grep -q -x -e "$1" <<<"$output"; then
		echo "ok $count - $2"
	else
		echo "not ok $count - $2"
		failed=1
	fi
}

unset GKV_LONG
program good <<<'echo "ok 1 - one"; echo "ok 2 - two"; echo 1..2'
program bad <<<'echo "ok 1 - one"; echo "not ok 2 - two"; echo "# 3 of 4"; echo 1..2; exit 1'
program skips <<<'echo "ok 1 - one"; echo "ok 2 - two # SKIP no such disk"; echo 1..2'
program skips_silently <<<'echo "ok 1 - one"; echo "not ok 2 # SKIP two"; echo 1..2'
program cmocka_skip <<<'echo "ok 1 - one"; echo "no such disk"; echo "not ok 2 # SKIP two"; echo 1..2'
program quiet_failure <<<'echo "ok 1 - one"; echo 1..1; exit 3'
program crash <<<'echo "ok 1 - one"; kill -SEGV $$'
program hang <<<'echo "ok 1 - one"; sleep 60'
program short <<<'echo 1..3; echo "ok 1 - one"'
program nothing <<<'exit 0'
program notes <<<'echo "# note: 7 of 9"; echo "ok 1 - one"; echo 1..1'
program skip_all <<<'echo "1..0 # SKIP needs another kernel"'
printf 'echo "ok 1 - one"\n(sleep 60) &\necho $! >%s/orphan\necho 1..1\n' "$work" | program orphan

totals good 2 0 0 "passes are counted"
totals bad 1 1 0 "a failed test is counted once"
shown "      # 3 of 4" "what a failed test says is shown at the end"
totals skips 1 0 1 "a skipped test is counted apart"
totals cmocka_skip 1 0 1 "cmocka's way of skipping is counted so"
totals skips_silently 1 1 0 "a skip without a reason is a failure"
totals quiet_failure 1 1 0 "an exit status without a failed test is a failure"
totals crash 1 1 0 "a crash is a failure"
totals hang 1 1 0 "running into the time limit is a failure"
totals short 1 1 0 "fewer tests than planned are a failure"
totals nothing 0 1 0 "a program without tests is a failure"
totals skip_all 0 0 1 "a program may skip as a whole"
totals notes 1 0 0 "a note is no result"
shown "  self/notes: 7 of 9" "a note is shown at the end"
totals orphan 1 0 0 "a program may leave a process behind"

count=$((count + 1))
# Dead, though perhaps not reaped yet.
if grep -q '^State:[[:space:]]*[RSDT]' "/proc/$(cat "$work/orphan")/status" 2>/dev/null; then
	echo "not ok $count - a process left behind is ended"
	failed=1
else
	echo "ok $count - a process left behind is ended"
fi
echo "1..$count"
exit $failed
