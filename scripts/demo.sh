#!/bin/bash
# SPDX-License-Identifier: MIT
#
# make demo: a kvbridged in a temporary directory, and a second process that replays a slice of a
# production trace against it through shared-memory queues, verifying every byte it gets back.
# Exits 0 only if all of them matched and the daemon stopped cleanly.
#
# STORE: local (default), or rados: on a throwaway Ceph cluster, whose objects are then shown and
# compared with the command line tool of Ceph.
# GKV_BUILD: where the programs are (build). TMPDIR: where the store goes, if it is on a disk.
set -euo pipefail

cd "$(dirname "$0")/.."
build=${GKV_BUILD:-build}
store=${STORE:-local}
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

case $store in
local)
	where="the local store (io_uring, direct I/O)"
	;;
rados)
	where="a pool of a throwaway Ceph cluster (one OSD, BlueStore)"
	command -v rados >/dev/null || die "Ceph is missing: run scripts/deps.sh ceph"
	;;
*)
	die "STORE is $store: local or rados"
	;;
esac
for program in kvbridged gkvctl gkv-bench; do
	[ -x "$build/$program" ] || die "$build/$program is missing: run make"
done
dir=$(pick_dir)
ceph=$dir/ceph/ceph.conf
daemon=

# The throwaway cluster of the tests, as a command.
cluster()
{
	python3 tests/ceph/cluster.py "$@"
}

# Objects as Ceph's own tool sees them.
rados_()
{
	rados -c "$ceph" -p kv -N demo "$@"
}

store_config()
{
	case $store in
	local)	printf '%s\n' "local.path = $dir/store" "local.size = ${store_mib}M" ;;
	rados)	printf '%s\n' "rados.conf = $ceph" "rados.pool = kv" "rados.namespace = demo" ;;
	esac
}

# What the store stands on can do without gkv: to floor.json.
measure_floor()
{
	local common=(--time 400ms -o json)

	case $store in
	local)
		dd if=/dev/urandom of="$dir/floor" bs=1M count=256 status=none
		"$build/gkv-bench" floor ring memcpy fio --file "$dir/floor" --write \
			--sizes "$value" --qds 32 "${common[@]}" >"$dir/floor.json"
		rm -f "$dir/floor"
		;;
	rados)
		"$build/gkv-bench" floor ring memcpy "${common[@]}" >"$dir/floor.json"
		"$build/gkv-bench" floor rados --conf "$ceph" --pool kv --namespace floor \
			--mode write,read --fill --sizes "$value" --depth 32 "${common[@]}" \
			>"$dir/floor-rados.json"
		;;
	esac
}

# What `rados` lists is what gkvctl lists, and some of it has the same bytes.
compare_objects()
{
	local name

	rados_ ls | sort >"$dir/objects"
	"$build/gkvctl" -o json list --key-format hex | grep -o '"hex": *"[0-9a-f]*"' |
		cut -d '"' -f 4 | sort >"$dir/keys"
	cmp -s "$dir/objects" "$dir/keys" ||
		die "\`rados ls\` and gkvctl list differ"
	echo
	echo "4. The values as objects: rados -p kv -N demo ..."
	echo "   $(wc -l <"$dir/objects") objects, the same names as the daemon's keys; some of them:"
	# Not head: sed reads to the end, so that nobody writes into a closed pipe.
	for name in $(sed -n '1p;100p;1000p;5000p' "$dir/objects"); do
		rados_ get "$name" "$dir/object"
		"$build/gkvctl" get --key-format hex "$name" "$dir/value" >/dev/null
		cmp -s "$dir/object" "$dir/value" || die "object $name has other bytes"
		echo "   $(rados_ stat "$name")"
	done
	echo "   each compared with what gkvctl retrieves: the same bytes"
}

finish()
{
	if [ -n "$daemon" ]; then
		kill -9 "$daemon" 2>/dev/null || true
		wait "$daemon" 2>/dev/null || true
	fi
	[ ! -e "$dir/ceph" ] || cluster wipe "$dir/ceph"
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
	stack = $store
	deadline = 60s
	$(store_config)
END
export GKV_SOCKET=$dir/kvbridged.sock

echo "gkv demo: 300 requests of a production trace through kvbridged, every byte verified"
echo
if [ "$store" = rados ]; then
	echo "0. A Ceph cluster on loopback, thrown away afterwards ($dir/ceph)"
	cluster start "$dir/ceph" >/dev/null || die "the cluster did not start"
fi
echo "1. The floor, for comparison"
measure_floor || die "the floor could not be measured"

echo "2. kvbridged on $where"
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

[ "$store" != rados ] || [ "$status" -ne 0 ] || compare_objects
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
	for json in "$dir"/floor*.json; do
		flatten "$json"
	done
	flatten "$dir/trace.json"
} | awk -F '\t' -v store="$store" '
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
	tool = store == "rados" ? "rados" : "fio"
	for (k in v) {
		if (k ~ tool " write.*bytes_per_s$") w = v[k]
		if (k ~ tool " read.*bytes_per_s$") r = v[k]
	}
	what = store == "rados" ? "librados without gkv" : "fio on the same disk"
	if (w != "")
		printf "floor       %s: write %.2f GB/s, read %.2f GB/s\n", what, w / 1e9, r / 1e9
	else
		print "floor       fio is not installed: no disk floor (Debian package fio)"
	printf "\n%-22s %10s %10s   %10s %10s   floor\n", "latency", "p50", "p99", "floor p50",
		"floor p99"
	row("exist, batches", "exist", store == "rados" ? "" : "bare ring, QD 1")
	row("retrieve 512 KiB, QD 32", "retrieve", w == "" ? "" : tool " read 512 KiB, QD 32")
	row("store 512 KiB, QD 32", "store", w == "" ? "" : tool " write 512 KiB, QD 32")
	printf "\nmismatches %d, errors %d\n", v["mismatches"], v["errors"]
}'
[ "$status" -eq 0 ] || die "the replay failed with status $status"
echo "every byte matched"
