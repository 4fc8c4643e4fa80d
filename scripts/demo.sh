#!/bin/bash
# SPDX-License-Identifier: MIT
#
# make demo: a kvbridged on the local store in a temporary directory, and a second process that
# replays a slice of a production trace against it through shared-memory queues, verifying every
# byte it gets back. Exits 0 only if all of them matched and the daemon stopped cleanly.
#
# GKV_BUILD: where the programs are (build). TMPDIR: where the store goes, if it is on a disk.
set -euo pipefail

cd "$(dirname "$0")/.."
build=${GKV_BUILD:-build}
trace=tests/data/conversation-slice.jsonl
# One rank of Llama-3-8B on 8 tensor-parallel x 16 pipeline-parallel GPUs: real arithmetic, and
# values of 512 KiB, so that 300 requests need 3.2 GiB.
layout=(--model Llama-3-8B --tp 8 --pp 16 --rank 0)
store_mib=4096
value=512K

die()
{
	echo "demo: $*" >&2
	exit 1
}

# A directory on a disk (a store in memory would show nothing) with room for the store.
pick_dir()
{
	local dir free

	for dir in "${TMPDIR:-/tmp}" /var/tmp "$build"; do
		[ -w "$dir" ] || continue
		case $(stat -f -c %T "$dir") in
		tmpfs | ramfs) continue ;;
		esac
		free=$(df -Pm "$dir" | awk 'NR == 2 { print $4 }')
		[ "$free" -ge $((store_mib + 600)) ] || continue
		mktemp -d "$dir/gkv-demo-XXXXXX"
		return
	done
	die "needs a writable directory on a disk with $((store_mib + 600)) MiB free: set TMPDIR"
}

for program in kvbridged gkv-bench; do
	[ -x "$build/$program" ] || die "$build/$program is missing: run make"
done
dir=$(pick_dir)
daemon=
finish()
{
	if [ -n "$daemon" ]; then
		kill -9 "$daemon" 2>/dev/null || true
		wait "$daemon" 2>/dev/null || true
	fi
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

cat >"$dir/kvbridged.conf" <<-END
	[daemon]
	socket = $dir/kvbridged.sock
	state_dir = $dir
	reactors = 1

	[namespace demo]
	nsid = 1
	stack = local
	local.path = $dir/store
	local.size = ${store_mib}M
END
export GKV_SOCKET=$dir/kvbridged.sock

echo "gkv demo: 300 requests of a production trace through kvbridged, every byte verified"
echo
echo "1. The machine's own floor, for comparison"
dd if=/dev/urandom of="$dir/floor" bs=1M count=256 status=none
"$build/gkv-bench" floor ring memcpy fio --file "$dir/floor" --write --sizes "$value" --qds 32 \
	--time 400ms -o json >"$dir/floor.json" || die "the floor could not be measured"
rm -f "$dir/floor"

echo "2. kvbridged on the local store ($dir/store, io_uring, direct I/O)"
"$build/kvbridged" -c "$dir/kvbridged.conf" >"$dir/log" 2>&1 &
daemon=$!
for _ in $(seq 300); do
	[ -S "$GKV_SOCKET" ] && break
	kill -0 "$daemon" 2>/dev/null || break
	sleep 0.1
done
[ -S "$GKV_SOCKET" ] || { cat "$dir/log" >&2; die "kvbridged did not start"; }

echo "3. A second process replays $trace"
status=0
"$build/gkv-bench" trace "$trace" "${layout[@]}" --qd 32 -o json >"$dir/trace.json" || status=$?

kill -TERM "$daemon" 2>/dev/null || true
stopped=0
wait "$daemon" || stopped=$?
daemon=
if [ "$stopped" -ne 0 ]; then
	tail -n 20 "$dir/log" >&2
	die "kvbridged ended with status $stopped"
fi
[ -s "$dir/trace.json" ] || die "the replay failed"

# "path value" lines of a pretty-printed JSON document; list elements are named by their "name".
flatten()
{
	awk '
	{
		sub(/^ +/, ""); sub(/,$/, "")
		key = ""
		if (match($0, /^"[^"]*":/)) {
			key = substr($0, 2, RLENGTH - 3)
			$0 = substr($0, RLENGTH + 1)
		}
		if ($0 == "{" || $0 == "[")
			path[++depth] = key
		else if ($0 == "}" || $0 == "]")
			depth--
		else {
			gsub(/"/, "")
			if (key == "name") { path[depth] = $0; next }
			where = ""
			for (i = 1; i <= depth; i++)
				if (path[i] != "")
					where = where path[i] "/"
			print where key "\t" $0
		}
	}' "$1"
}

echo
{
	flatten "$dir/floor.json"
	flatten "$dir/trace.json"
} | awk -F '\t' '
{ v[$1] = $2 }
function time(ns) {
	if (ns == "") return "-"
	if (ns < 1e3) return sprintf("%.0f ns", ns)
	if (ns < 1e6) return sprintf("%.1f us", ns / 1e3)
	return sprintf("%.2f ms", ns / 1e6)
}
function row(name, what, floor, rate, p50, p99) {
	p50 = floor == "" ? "" : v["floors/" floor "/p50_ns"]
	p99 = floor == "" ? "" : v["floors/" floor "/p99_ns"]
	printf "%-22s %10s %10s   %10s %10s   %s\n", name, time(v["by_command/" what "/p50_ns"]),
		time(v["by_command/" what "/p99_ns"]), time(p50), time(p99), floor
}
END {
	moved = v["stored_bytes"] + v["retrieved_bytes"]
	printf "requests    %d in %.1f s\n", v["requests"], v["seconds"]
	printf "hit ratio   %.1f %% of %d blocks (%.1f %% with unlimited space)\n",
		100 * v["hit_ratio"], v["blocks"], 100 * v["trace/ideal_hit_ratio"]
	printf "moved       %.2f GB: %.2f GB stored, %.2f GB retrieved and verified; %.2f GB/s\n",
		moved / 1e9, v["stored_bytes"] / 1e9, v["retrieved_bytes"] / 1e9,
		moved / 1e9 / v["seconds"]
	for (k in v) {
		if (k ~ /fio write.*bytes_per_s$/) w = v[k]
		if (k ~ /fio read.*bytes_per_s$/) r = v[k]
	}
	if (w != "")
		printf "floor       fio on the same disk: write %.2f GB/s, read %.2f GB/s\n",
			w / 1e9, r / 1e9
	else
		print "floor       fio is not installed: no disk floor (Debian package fio)"
	printf "\n%-22s %10s %10s   %10s %10s   floor\n", "latency", "p50", "p99", "floor p50",
		"floor p99"
	row("exist, batches", "exist", "bare ring, QD 1")
	row("retrieve 512 KiB, QD 32", "retrieve", w == "" ? "" : "fio read 512 KiB, QD 32")
	row("store 512 KiB, QD 32", "store", w == "" ? "" : "fio write 512 KiB, QD 32")
	printf "\nmismatches %d, errors %d\n", v["mismatches"], v["errors"]
}'
[ "$status" -eq 0 ] || die "the replay failed with status $status"
echo "every byte matched"
