#!/bin/bash
# SPDX-License-Identifier: MIT
#
# R10: gkvdrv lives on what the kernel exports. It hooks nothing, finds nothing by the name of its
# symbol, patches nothing, and has no code for one architecture: anything with ZONE_DEVICE will do.
# (That it needs no symbol that is not exported, the builds of selftests/vm show.) Speaks TAP.
set -uo pipefail

SOURCES=kernel/gkvdrv
count=0
failed=0

# lacks NAME PATTERN: no line of the module's sources matches.
lacks()
{
	local found

	count=$((count + 1))
	if found=$(grep -rnE --include=*.[ch] --include=Kbuild --exclude=*.mod.c "$2" "$SOURCES"); then
		echo "not ok $count - R10: $1"
		sed 's/^/# /' <<<"$found"
		failed=1
	else
		echo "ok $count - R10: $1"
	fi
}

# Of nothing, all of it would be true.
files=$(find "$SOURCES" -name '*.c' | wc -l)
count=1
if [ "$files" -ge 10 ] && grep -q -r 'MODULE_LICENSE("GPL' "$SOURCES"; then
	echo "ok 1 - R10: the module's sources are there ($files), under the GPL"
else
	echo "not ok 1 - R10: the module's sources are there, under the GPL"
	failed=1
fi
lacks "no probes and no hooks" \
	'k(ret)?probe|ftrace_(set|register)|register_ftrace|register_trace_|security_(add|hook)|fprobe'
lacks "no symbol found by its name" 'kallsyms|__symbol_get|symbol_get\('
lacks "nothing patched, no page made writable" 'text_poke|set_memory_|write_cr0|sys_call_table'
lacks "nothing of one architecture" \
	'#include <asm/|asm(_inline)?( volatile)?[ (]|CONFIG_(X86|ARM|RISCV|PPC)|__(x86|aarch)|boot_cpu'
echo "1..$count"
exit "$failed"
