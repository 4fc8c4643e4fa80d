#!/bin/bash
# SPDX-License-Identifier: MIT
# gkv-timeout: 300
#
# gkv-gpusim: the device header in both ways and under each policy against a real daemon, which is
# killed, started again and stopped meanwhile; every value is verified. Speaks TAP.
. "$(dirname "$0")/../lib/common.sh"

config()
{
	cat <<-END
		[daemon]
		reactors = 2
		state_dir = @DIR@
		[namespace main]
		nsid = 1
		stack = mem
		[namespace local]
		nsid = 2
		stack = local
		local.path = @DIR@/store
		local.size = 256M
	END
}

sim()
{
	"$GKV_BUILD/gkv-gpusim" -s "$SOCKET" "$@"
}

# A sanitizer makes lockstep slow.
many=32
[ -z "${GKV_SAN:-}" ] || many=1

start_daemon < <(config)
for ns in main local; do
	check "threads, $ns" sim -n $ns -w 4 -l 8 -r 3
	check "threads in batches, $ns" sim -n $ns -w 4 -l 8 -r 2 -b 100 -d 64
	for policy in random worst its first together starve; do
		check "lockstep, policy $policy, $ns" sim -n $ns -y lockstep -p $policy -w 4 -l 8 -r 2
		check "lockstep in batches, policy $policy, $ns" \
			sim -n $ns -y lockstep -p $policy -w 2 -l 8 -r 2 -b 40 -d 16
	done
done
for ns in main local; do
	check "PRPs, $ns" sim -n $ns -w 2 -l 4 -r 3 -v 100000 --prp
	check "PRPs of values that begin anywhere, $ns" sim -n $ns -w 2 -l 4 -r 3 -v 100000 --prp --offset 12
	check "values that begin anywhere, $ns" sim -n $ns -w 2 -l 4 -r 3 -v 100000 --offset 511
done
check "a queue of depth 2" sim -n main -y lockstep -p worst -w 2 -l 4 -r 2 -d 2
check "lanes by the thousand" sim -n main -y lockstep -w $((many * 4)) -l 32 -r 1 -v 512
check "1,023 keys with one doorbell" sim -n main -w 1 -l 32 -b 1023 -d 1024 -r 1
check "no more than one doorbell for each step of a round" \
	grep -q "^6 doorbells, 1023.0 commands each" <<<"$(sim -n main -w 1 -l 32 -b 1023 -d 1024 -r 1)"
check "wrong usage is told" is_status 2 sim -l 65
check "PRPs cannot begin anywhere" is_status 2 sim --prp --offset 511
check "a machine needs files" is_status 2 "$GKV_BUILD/gkv-gpusim" --attach 0x1000
head -c 65536 /dev/zero >"$WORK/ram"
check "nothing is described there" is_status 1 "$GKV_BUILD/gkv-gpusim" --bus "$WORK/ram@0" --attach 0x1000
check "nothing is there" is_status 1 "$GKV_BUILD/gkv-gpusim" --bus "$WORK/ram@0" --attach 0x10000
check "a namespace that is not there" is_status 1 sim -n nothing
stop_daemon

daemon="exec $GKV_BUILD/kvbridged -c $WORK/kvbridged.conf >>$WORK/kvbridged.log 2>&1"
for way in threads "lockstep -p starve" "lockstep -p random"; do
	# shellcheck disable=SC2086
	output=$(sim -n local -y $way -w 2 -l 8 -r 1 -k 3 --stalls 2 --every 100 \
		-D "$daemon" 2>&1)
	status=$?
	echo "$output" | sed 's/^/# /'
	check "the daemon killed 3 times and stopped twice, $way" \
		grep -q "^3 kills, 2 stalls" <<<"$output"
	check "the lanes notice only delay, $way" [ $status -eq 0 ]
done
finish
