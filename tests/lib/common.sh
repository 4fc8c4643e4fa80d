# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Test helper for shell scripts: TAP output, a kvbridged in a temporary directory, gkvctl.
#
#	. "$(dirname "$0")/../lib/common.sh"
#	start_daemon <<-END
#		[namespace main]
#		nsid = 1
#		stack = mem
#	END
#	check "a missing key is reported" is_status 3 ctl get nokey -
#	finish
#
# A daemon that ends in any way but the one the test asked for fails the test.
set -uo pipefail

GKV_BUILD=${GKV_BUILD:-build}
TAP_COUNT=0
TAP_FAILED=0
DAEMON_PID=

WORK=$(mktemp -d "${TMPDIR:-/tmp}/gkv-XXXXXX")
SOCKET=$WORK/kvbridged.sock

cleanup()
{
	if [ -n "$DAEMON_PID" ]; then
		kill -9 "$DAEMON_PID" 2>/dev/null
		wait "$DAEMON_PID" 2>/dev/null
	fi
	rm -rf "$WORK"
}
trap cleanup EXIT

# pass NAME, fail NAME, skip NAME REASON: one result each.
pass()
{
	TAP_COUNT=$((TAP_COUNT + 1))
	echo "ok $TAP_COUNT - $1"
}

fail()
{
	TAP_COUNT=$((TAP_COUNT + 1))
	TAP_FAILED=$((TAP_FAILED + 1))
	echo "not ok $TAP_COUNT - $1"
}

skip()
{
	TAP_COUNT=$((TAP_COUNT + 1))
	echo "ok $TAP_COUNT - $1 # SKIP $2"
}

# check NAME COMMAND...: a result by the command's exit status, its output as diagnostics.
check()
{
	local name=$1 output

	shift
	if output=$("$@" 2>&1); then
		pass "$name"
	else
		fail "$name"
		sed 's/^/# /' <<<"$output"
	fi
}

# is_status STATUS COMMAND...
is_status()
{
	local want=$1 got

	shift
	"$@"
	got=$?
	[ "$got" -eq "$want" ] || { echo "exit status $got, want $want"; return 1; }
}

# ctl ARGUMENT...: gkvctl on this test's daemon.
ctl()
{
	"$GKV_BUILD/gkvctl" -s "$SOCKET" "$@"
}

# start_daemon [VARIABLE=VALUE...]: configuration on stdin; @DIR@ stands for the work directory.
# Without one (stdin a terminal or empty), the configuration of the last start is used again.
start_daemon()
{
	local config tries=0

	config=$(cat | sed "s|@DIR@|$WORK|g")
	if [ -n "$config" ]; then
		grep -q '^\[daemon\]' <<<"$config" || config="[daemon]"$'\n'"$config"
		sed "s|^\[daemon\]|&\nsocket = $SOCKET|" <<<"$config" >"$WORK/kvbridged.conf"
	fi
	env "$@" "$GKV_BUILD/kvbridged" -c "$WORK/kvbridged.conf" >>"$WORK/kvbridged.log" 2>&1 </dev/null &
	DAEMON_PID=$!
	until ctl -q status >/dev/null 2>&1; do
		tries=$((tries + 1))
		if [ $tries -gt 300 ] || ! kill -0 "$DAEMON_PID" 2>/dev/null; then
			fail "kvbridged starts"
			daemon_log
			return 1
		fi
		sleep 0.1
	done
}

daemon_log()
{
	tail -n 40 "$WORK/kvbridged.log" | sed 's/^/# /'
}

# stop_daemon: fails unless the daemon was alive and exits with 0 within 60 s.
stop_daemon()
{
	local pid=$DAEMON_PID status=0 tries=0

	[ -n "$pid" ] || return 0
	DAEMON_PID=
	if ! kill -TERM "$pid" 2>/dev/null; then
		wait "$pid"
		fail "kvbridged was gone before it was stopped (exit status $?)"
		daemon_log
		return 1
	fi
	while kill -0 "$pid" 2>/dev/null && [ $tries -lt 600 ]; do
		tries=$((tries + 1))
		sleep 0.1
	done
	[ $tries -lt 600 ] || kill -9 "$pid"
	wait "$pid" || status=$?
	if [ $status -ne 0 ]; then
		fail "kvbridged did not stop cleanly (exit status $status)"
		daemon_log
		return 1
	fi
}

# kill_daemon: kill -9 as the test's own doing; fails if the daemon was gone before.
kill_daemon()
{
	local pid=$DAEMON_PID

	DAEMON_PID=
	if ! kill -9 "$pid" 2>/dev/null; then
		fail "kvbridged was gone before it was killed"
		daemon_log
		return 1
	fi
	wait "$pid" 2>/dev/null
	return 0
}

# finish: stops the daemon, prints the plan and exits.
finish()
{
	stop_daemon
	echo "1..$TAP_COUNT"
	[ $TAP_FAILED -eq 0 ]
	exit
}
