#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Every public header compiles alone, without warnings, as C90, C11 and C++17, with gcc and clang;
# those for device code need no C90.
# Every struct of uapi has its size asserted and no padding the compiler put there. Speaks TAP.
set -uo pipefail

count=0
failed=0

# try COMPILER STANDARD LANGUAGE HEADER
try()
{
	local output name="$4 alone as $2 ($1)"

	count=$((count + 1))
	# A translation unit of its own: compiling a header directly hides warnings of includes.
	if output=$(printf '#include "%s"\n' "$4" | "$1" -x "$3" -std="$2" -pedantic -Wall -Wextra \
			-Werror -Iuapi -Ilib/include -I. -fsyntax-only - 2>&1); then
		echo "ok $count - $name"
	else
		echo "not ok $count - $name"
		sed 's/^/# /' <<<"$output"
		failed=1
	fi
}

for header in uapi/gkv/*.h lib/include/*.h lib/include/gkv_device/*.h; do
	# Those of one kind of device are compiled by scripts/check-device.sh.
	case $header in
	*/port_cuda.h | */port_hip.h | */port_sim.h | */port_c.h) continue ;;
	esac
	for standard in c90 c11; do
		case $standard$header in
		c90*gkv_device*) continue ;;
		esac
		try gcc $standard c "$header"
		try clang $standard c "$header"
	done
	try g++ c++17 c++ "$header"
	try clang++ c++17 c++ "$header"
done

for header in uapi/gkv/*.h; do
	count=$((count + 1))
	unasserted=$(comm -23 \
		<(grep -o -E '^struct [a-z0-9_]+ \{' "$header" | awk '{ print $2 }' | sort -u) \
		<(grep -o -E '^GKV_ASSERT_SIZE\([a-z0-9_]+' "$header" | sed 's/.*(//' | sort -u))
	padded=$(printf '#include "%s"\n' "$header" |
		gcc -x c -std=c11 -Wpadded -Iuapi -I. -fsyntax-only - 2>&1 | grep -E 'padd')
	if [ -z "$unasserted$padded" ]; then
		echo "ok $count - $header: every size asserted, no implicit padding"
	else
		echo "not ok $count - $header: every size asserted, no implicit padding"
		sed 's/^/# /' <<<"$unasserted$padded"
		failed=1
	fi
done
echo "1..$count"
exit $failed
