#!/bin/bash
# SPDX-License-Identifier: MIT
# gkv-san: no builds the tests itself
#
# F6: the ring tests of libgkv pass with everything the compiler can do to shared-memory
# accesses: -O3, and with the library and the test optimised as one program.
set -uo pipefail
. "$(dirname "$0")/../lib/common.sh"

top=$(cd "$(dirname "$0")/../.." && pwd)

# ring_test COMPILER TEST FLAG...
ring_test()
{
	local cc=$1 test=$2
	shift 2
	# shellcheck disable=SC2046
	"$cc" -std=gnu11 -D_GNU_SOURCE "$@" -Wall -Wextra -Werror -pthread -I"$top/uapi" \
		-I"$top/lib/include" -I"$top/tests/lib" -o "$WORK/test" "$top"/lib/src/*.c \
		"$top/tests/unit/fakedaemon.c" "$top/tests/unit/$test.c" \
		$(pkg-config --cflags --libs cmocka) && "$WORK/test"
}

for test in test_lib_torn test_lib_ring; do
	check "$test with gcc -O3" ring_test gcc "$test" -O3
	check "$test with gcc -O3 and LTO" ring_test gcc "$test" -O3 -flto=auto
	if command -v clang >/dev/null; then
		check "$test with clang -O3" ring_test clang "$test" -O3
	else
		skip "$test with clang -O3" "clang is not installed"
	fi
done
finish
