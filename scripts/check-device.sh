#!/bin/bash
# SPDX-License-Identifier: MIT
#
# gkv_device.h as machine code: compiles for NVIDIA's and AMD's processors, writes an entry of the
# SQ with four stores of 16 bytes, and has the orders and fences it is built on. clang does it
# without either vendor's headers; where nvcc is installed, that is asked as well. Speaks TAP.
set -uo pipefail

SOURCE=tests/device/kernels.cu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
count=0
failed=0

# ok STATUS NAME
ok()
{
	count=$((count + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $count - $2"
	else
		echo "not ok $count - $2"
		failed=1
	fi
}

# code KERNEL: the kernel's part of the assembly in $asm.
code()
{
	awk -v k="$1" '
		$0 ~ "^(\\.visible )?(\\.entry |" k ":)" { on = $0 ~ "(^| )" k "[:(]" }
		/^\t?\.size|^}/ { on = 0 }
		on' "$asm"
}

# has KERNEL N PATTERN WHAT: exactly N lines of the kernel's code match.
has()
{
	local n

	n=$(code "$1" | grep -c -E "$3")
	[ "$n" -eq "$2" ]
	ok $? "$chip: $1: $4"
	[ "$n" -eq "$2" ] || echo "# $n instructions, want $2: $3"
}

# cost KERNEL...: instructions of each, so that a change of them is seen.
cost()
{
	local text= k

	for k; do
		text+=", $k $(code "$k" |
			grep -c -E '^[[:space:]]+(@!?%p[0-9]+[[:space:]]+)?[a-z]+[a-z0-9_.]*[[:space:]].*[^:]$')"
	done
	echo "# note: $chip: instructions: ${text#, }"
}

# compile NAME COMMAND...: to assembly in $asm; no warnings.
compile()
{
	local output

	chip=$1
	asm=$work/$1.s
	shift
	if output=$("$@" -std=c++17 -O2 -Iuapi -Ilib/include -o "$asm" "$SOURCE" 2>&1) &&
			[ -z "$output" ]; then
		ok 0 "$chip: compiles without warnings"
	else
		ok 1 "$chip: compiles without warnings"
		sed 's/^/# /' <<<"$output"
		: >>"$asm"
	fi
}

ptx()
{
	has pack 4 'st\.relaxed\.sys\.v2\.u64' "an entry is four stores of 16 bytes"
	has publish 1 'st\.release\.sys\.u32' "one doorbell, after all that was stored"
	has publish 2 'fence\.sc\.gpu' "the lock is handed over between fences"
	has publish 2 'st\.release\.gpu\.u32' "a run is marked, the lock let go, after what was stored"
	has reap 1 'ld\.acquire\.sys\.u32' "the phase is loaded first"
	has reap 1 'ld\.relaxed\.sys\.v2\.u64' "the entry is loaded again, at once"
	has reap 1 'st\.release\.sys\.u32' "one doorbell"
}

CLANG=${CLANG:-clang}
for chip in sm_70 sm_80; do
	compile $chip "$CLANG" -x cuda --cuda-device-only --cuda-gpu-arch=$chip -nocudainc \
		-nocudalib -Wall -Wextra -Werror -Wno-unknown-cuda-version -S
	ptx
	cost pack publish reap crc32c
done
for chip in gfx90a gfx1030; do
	compile $chip "$CLANG" -x hip --cuda-device-only --offload-arch=$chip -nogpuinc \
		-nogpulib -Wall -Wextra -Werror -S
	has pack 4 '(flat|global)_store_dwordx4' "an entry is four stores of 16 bytes"
	has reap 1 '(flat|global)_load_dwordx4 .* glc' "an entry is loaded at once, past the cache"
	cost pack publish reap crc32c
done
if command -v nvcc >/dev/null; then
	oldest=$(nvcc --list-gpu-arch | sort -V | grep -v -x -E 'compute_([1-6].)' | head -n 1)
	compile nvcc nvcc "-arch=${oldest/compute/sm}" -Werror all-warnings -ptx
	ptx
	compile "ptxas ${oldest/compute/sm}" nvcc "-arch=${oldest/compute/sm}" \
		-Werror all-warnings -cubin
else
	count=$((count + 1))
	echo "ok $count - nvcc: PTX of NVIDIA's own compiler # SKIP no nvcc on this machine"
fi
echo "1..$count"
exit $failed
