#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What tests/gpu/run.sh runs of stream order on a GPU, on the stand-in for the driver. Speaks TAP.
. "$(dirname "$0")/../lib/common.sh"

cd "$(dirname "$0")/../.." || exit 1
flags=(-std=gnu11 -O2 -g -Wall -Wextra -Werror -pthread)

start_daemon <<-END
	[daemon]
	reactors = 2
	[namespace main]
	nsid = 1
	stack = mem
END
check "the driver's stand-in" "${CC:-cc}" "${flags[@]}" -shared -fPIC -o "$WORK/libcuda.so.1" \
	tests/unit/gpu_stub_lib.c
check "the program" "${CC:-cc}" "${flags[@]}" -D_GNU_SOURCE -Iuapi -Ilib/include -o "$WORK/stream" \
	tests/gpu/stream.c lib/src/*.c -ldl
export GKV_SOCKET=$SOCKET GKV_LIBCUDA=$WORK/libcuda.so.1
check "every value goes through the stream and back" timeout 200 "$WORK/stream" 3
finish
