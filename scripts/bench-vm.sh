#!/bin/bash
# SPDX-License-Identifier: MIT
#
# make bench VM=1: what commands take in each of the sixteen memory modes, in a virtual machine whose
# VRAM is a BAR in a file of the host's. Takes root, some 5 minutes, and more the first time.
#
# usage: scripts/bench-vm.sh [--help]
set -euo pipefail

cd "$(dirname "$0")/.."
export GKV_BUILD=${GKV_BUILD:-build}
rounds=${GKV_TIMING_ROUNDS:-5}
vm=selftests/vm
out=$GKV_BUILD/bench

if [ $# -gt 0 ]; then
	cat <<-END
		usage: make bench VM=1, or scripts/bench-vm.sh, as root

		Boots a virtual machine with a GPU's memory that is none, and measures Retrieves and Stores of
		4 KiB and 1 MiB in each of the sixteen memory modes, from memory and from a raw disk; each
		value of depth 1 is compared. All modes are measured in turn, $rounds times; a figure is the median
		of the commands in the best round. A number behind it is its ratio to mode 0x0; the last row,
		mode 0x0 once more, says how far chance goes: run it while nothing else runs.

		The tables go to $out/modes.md, everything to $out/modes.txt.

		GKV_TIMING_ROUNDS=N  rounds (5); one takes about a minute on an idle machine
		GKV_BUILD=DIR        where everything is built (build)
		GKV_VM_CACHE=DIR     where the machine's Debian is kept (\$GKV_BUILD/vm)
	END
	[ "$*" = --help ] || exit 2
	exit 0
fi

die()
{
	echo "bench: $*" >&2
	exit 1
}

case $rounds in
*[!0-9]* | "" | 0*) die "GKV_TIMING_ROUNDS is '$rounds': a number from 1 on" ;;
esac
echo "The machine"
"$vm/prepare.sh"
mkdir -p "$out"
limit=$((120 + 240 * rounds))
echo "Measuring, $rounds rounds"
"$vm/vm.py" run --kernel newest --topology switch --user --module "$GKV_BUILD/vm-out/newest/gkvdrv.ko" \
	--env "GKV_TIMING_ROUNDS=$rounds" --limit $limit --program-limit $((limit - 60)) \
	--logs "$GKV_BUILD/vm-out/logs/bench" -- selftests/user_timings.py |
	tee "$out/modes.txt" | sed -u -n 's/^# \(.*: round\)/   \1/p' || {
	sed -n '/^not ok/,/^ok/p' "$out/modes.txt" >&2
	die "no table; the machine's logs are in $GKV_BUILD/vm-out/logs/bench"
}
{
	cpu=$(sed -n 's/^model name\t*: //p' /proc/cpuinfo | sort -u | paste -sd,)
	echo "$(qemu-system-x86_64 --version | sed -n 's/ (.*//; 1p') on ${cpu:-$(uname -m)}," \
		"$(nproc) processors; guest: $(sed -n '1s/^# //p' "$out/modes.txt"); best of $rounds rounds"
	awk '/^# \|/ { if (!table++) print ""; print substr($0, 3); next } { table = 0 }' "$out/modes.txt"
} >"$out/modes.md"
echo
cat "$out/modes.md"
echo
echo "$out/modes.md"
