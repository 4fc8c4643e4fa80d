#!/bin/bash
# SPDX-License-Identifier: MIT
#
# libgkv.so exports exactly what gkv.h declares, every symbol with a version, and links with
# nothing undefined. Speaks TAP.
set -uo pipefail

so=${GKV_BUILD:-build}/libgkv.so.0
failed=0

report()
{
	if [ -z "$3" ]; then
		echo "ok $1 - $2"
	else
		echo "not ok $1 - $2"
		sed 's/^/# /' <<<"$3"
		failed=1
	fi
}

exported=$(nm -D --defined-only "$so" | awk '$2 ~ /[TDBRVW]/ { print $3 }' | sort)
names=$(sed 's/@.*//' <<<"$exported" | sort -u)
# The declarations as the compiler sees them; a pointer to a function is not followed by "(".
declared=$(gcc -E -P -Iuapi lib/include/gkv.h | grep -o -E '\bgkv_[a-z0-9_]+ *\(' | tr -d ' (' | sort -u)

report 1 "everything gkv.h declares is exported" "$(comm -13 <(echo "$names") <(echo "$declared"))"
report 2 "nothing else is exported" "$(comm -23 <(echo "$names") <(echo "$declared"))"
report 3 "every export has a version" "$(grep -v '@@\?GKV_' <<<"$exported")"
report 4 "soname is libgkv.so.0" \
	"$(objdump -p "$so" | awk '$1 == "SONAME" && $2 != "libgkv.so.0" { print $2 }')"
echo "1..4"
exit $failed
