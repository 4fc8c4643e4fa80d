#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Everything the VM rig checks, in TAP: the rig itself, the module's build and style for both
# kernels, and the machines of the table "scenarios". What is missing is a failure, never a skip.
#
# gkv-san: no it tests the kernel module in a virtual machine, not user space
# gkv-timeout: 4200
#
# usage: selftests/vm/check.sh [--debug] [NAME...]	only the machines whose names begin so
#
# With --debug the machines of the debug kernel, which is built first, and nothing else.
set -uo pipefail

here=$(dirname "$(realpath "$0")")
top=$(realpath "$here/../..")
cd "$top" || exit 1
# shellcheck source=selftests/vm/in-root.sh
. "$here/in-root.sh"
export GKV_VM_CACHE=$vm_cache
out=${GKV_BUILD:-build}/vm-out
count=0
failed=0

# step NAME COMMAND...: one result; what the command says goes into the diagnostics.
step()
{
	local name=$1 output status

	shift
	count=$((count + 1))
	output=$("$@" 2>&1)
	status=$?
	if [ $status -eq 0 ]; then
		echo "ok $count - $name"
	else
		echo "not ok $count - $name"
		failed=$((failed + 1))
	fi
	[ -z "$output" ] || tail -n 60 <<<"$output" | sed 's/^/# /'
	return $status
}

# nested NAME COMMAND...: a program that prints TAP itself, its numbers beginning at $RIG_FIRST.
nested()
{
	local results status bad name

	name=$1
	shift
	RIG_FIRST=$((count + 1)) "$@" | tee "$out/last.tap"
	status=${PIPESTATUS[0]}
	cat "$out/last.tap" >>"$out/all.tap"
	results=$(grep -c -E '^(not )?ok ' "$out/last.tap")
	bad=$(grep -c '^not ok ' "$out/last.tap")
	count=$((count + results))
	failed=$((failed + bad))
	if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ] || [ "$results" -eq 0 ]; then
		count=$((count + 1))
		failed=$((failed + 1))
		echo "not ok $count - $name: ended with status $status and $results results"
	fi
}

# How many promises were checked on which kernel; what the host saw for them is not counted again.
summary()
{
	grep -v 'host sees' "$out/all.tap" | awk '
		match($0, /^(not )?ok [0-9]+ - [a-z]+\//) {
			split($0, part, / - |\//)
			kernel = part[2]
			total[kernel]++
			if (/^not/)
				bad[kernel]++
			else if (/# SKIP/)
				skipped[kernel]++
		}
		END {
			for (kernel in total)
				printf "# note: %s kernel: %d promises checked, %d broken, %d skipped\n", kernel,
					total[kernel] - skipped[kernel], bad[kernel], skipped[kernel]
		}'
}

finish()
{
	summary
	echo "1..$count"
	[ "$failed" -eq 0 ]
	exit
}

# kind PROGRAM: "user" of those that need user space, "all" of the others.
kind()
{
	case ${1##*/} in
	user_*)	echo user ;;
	*)	echo all ;;
	esac
}

# programs_of LIST: paths of the programs that a row of the table names, one a line.
programs_of()
{
	local name

	case $1 in
	all|user)
		# What does not compile has failed already.
		for name in "${selftests[@]}"; do
			[ "$1" = "$(kind "$name")" ] && [ -e "$name" ] && echo "$name"
		done
		return
		;;
	esac
	for name in ${1//,/ }; do
		if [ -e "selftests/$name" ]; then
			echo "selftests/$name"
		else
			echo "$out/programs/$name"
		fi
	done
}

# machine NAME KERNEL MODULE PROGRAMS OPTION...
machine()
{
	local name=$1 kernel=$2 module=() programs extra

	[ "$3" = - ] || module=(--module "$out/$kernel/$3.ko")
	[ "$3" != gkvdrv ] || for extra in "$out/$kernel"/extra/*.ko; do
		module+=(--extra-module "$extra")
	done
	mapfile -t programs < <(programs_of "$4")
	shift 4
	if [ -z "$user" ] && [[ " $* " = *" --user "* ]]; then
		user=built
		step "user space for the machines" "$here/user.sh"
	fi
	nested "$name" python3 "$here/vm.py" run --kernel "$kernel" --label "$kernel/$name" \
		--logs "$out/logs/$kernel-$name" "${module[@]}" "$@" -- "${programs[@]}"
}

wanted()
{
	local prefix

	[ ${#only[@]} -gt 0 ] || return 0
	for prefix in "${only[@]}"; do
		[[ $1 != "$prefix"* ]] || return 0
	done
	return 1
}

kernels="newest stable"
if [ "${1:-}" = --debug ]; then
	kernels=debug
	shift
fi
only=("$@")
mkdir -p "$out"
: >"$out/all.tap"
shopt -s nullglob
sources=(selftests/*.c)
scripts=(selftests/*.sh selftests/*.py)
selftests=("${scripts[@]}")
for source in "${sources[@]}"; do
	selftests+=("$out/programs/$(basename "$source" .c)")
done
drivers=(kernel/gkvdrv/*.c)
# Modules that only tests load, such as an exporter of dma-bufs: in /modules of the guest.
extras=(selftests/*/Kbuild)

[ "$(id -u)" -eq 0 ] || { step "the rig has what it needs: root (chroot, mmdebstrap)" false; finish; }
step "the rig has the Debian packages it needs" scripts/deps.sh vm ceph || finish
step "a root with the newest and the stable kernel" "$here/root.sh" || finish
step "test programs compile" "$here/module.sh" programs "$out/programs" "${sources[@]}" \
	"$here"/selftest/*.c
[ "$kernels" != debug ] || step "a debug kernel" "$here/debug-kernel.sh" || finish
for kernel in $kernels; do
	step "p2pbar builds for $kernel" "$here/module.sh" build "$kernel" "$out/$kernel" \
		selftests/vm/selftest/p2pbar
	[ ${#drivers[@]} -gt 0 ] || continue
	step "gkvdrv builds for $kernel, W=1" "$here/module.sh" build "$kernel" "$out/$kernel"
	for extra in "${extras[@]%/Kbuild}"; do
		step "$extra builds for $kernel, W=1" "$here/module.sh" build "$kernel" \
			"$out/$kernel/extra" "$extra"
	done
	[ "$kernel" != debug ] || continue
	step "gkvdrv is clean under sparse for $kernel" "$here/module.sh" sparse "$kernel" "$out/$kernel"
	step "DKMS and modules_install for $kernel" "$here/module.sh" dkms "$kernel" "$out/$kernel"
done
if [ "$kernels" != debug ]; then
	step "headers for 32-bit programs" "$here/module.sh" m32
	step "checkpatch --strict" "$here/module.sh" checkpatch "$out"
	! wanted rig || nested rig python3 "$here/test_rig.py" --p2pbar "$out/newest/p2pbar.ko"
fi

used=""
user=""
machines=0
while read -r name which module programs options; do
	case $name in
	""|"#"*) continue ;;
	esac
	used+=" $programs"
	wanted "$name" || continue
	# Expressions among the options are not file names.
	read -ra options <<<"$options"
	for kernel in $kernels; do
		case $which/$kernel in
		"$kernel/$kernel" | both/newest | both/stable) ;;
		*) continue ;;
		esac
		machines=$((machines + 1))
		machine "$name" "$kernel" "$module" "$programs" "${options[@]}" </dev/null
	done
done <"$here/scenarios"

[ "$machines" -gt 0 ] || step "a machine of ${kernels// / or } ${only[*]}" false

# A test that no machine runs would be one that cannot fail.
for source in "${sources[@]}" "${scripts[@]}"; do
	name=$(basename "$source" .c)
	[[ " ${used//,/ } " =~ \ ($(kind "$name")|$name)\  ]] || step "$name is in the table of scenarios" false
done
finish
