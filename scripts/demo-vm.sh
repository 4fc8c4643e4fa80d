#!/bin/bash
# SPDX-License-Identifier: MIT
#
# make demo VM=1: a virtual machine whose VRAM is a BAR in a file of the host's. Queues, doorbells and
# values lie in it; a trace is replayed on a local disk and on a throwaway Ceph cluster, and the host
# looks from outside where the bytes are. Takes root, and some minutes the first time.
set -euo pipefail

cd "$(dirname "$0")/.."
export GKV_BUILD=${GKV_BUILD:-build}
vm=selftests/vm
out=$GKV_BUILD/vm-out/newest

die()
{
	echo "demo: $*" >&2
	exit 1
}

echo "gkv demo: VRAM in a virtual machine"
echo
echo "0. The machine"
"$vm/prepare.sh"
mkdir -p "$GKV_BUILD/vm-out/demo"
status=0
"$vm/vm.py" run --kernel newest --topology switch --user --cluster --append init_on_free=1 \
	--module "$out/gkvdrv.ko" --files tests/data/conversation-slice.jsonl:files/trace.jsonl \
	--hook gpu=$vm/gpu.sh --hook objects=$vm/objects.py --limit 600 --program-limit 500 \
	--logs "$GKV_BUILD/vm-out/demo" -- $vm/demo.py >"$GKV_BUILD/vm-out/demo/output" 2>&1 &
pid=$!
trap 'kill $pid 2>/dev/null; wait $pid; exit 130' INT TERM
# What is said as it comes; results in words.
tail -n +1 -f --pid=$pid "$GKV_BUILD/vm-out/demo/output" | sed -u -E \
	-e 's/^ok [0-9]+ - demo.py: /   shown: /' -e 's/^not ok [0-9]+ - /   NOT SHOWN: /' \
	-e 's/^ok [0-9]+ - /   checked: /' -e 's/^# (gpu|objects): /     /' -e 's/^# /   /' -e '/^1\.\./d'
wait $pid || status=$?
[ $status -eq 0 ] || die "the machine's logs are in $GKV_BUILD/vm-out/demo"
echo
echo "everything was where it had to be"
