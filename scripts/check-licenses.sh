#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Every source file names its licence in one of its first lines, with identifiers whose text is in
# LICENSES/, and interface headers carry the dual licence. Speaks TAP.
set -uo pipefail

failed=0

# report NUMBER NAME LIST: fails when LIST is not empty.
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

# Files git would commit; a plain source archive has no git.
sources()
{
	{ git ls-files -co --exclude-standard 2>/dev/null || find . -name build -prune -o -type f -print; } |
		sed 's|^\./||' |
		grep -E '(\.[chS]|\.py|\.sh|\.def|\.map|/?Makefile|/?Kbuild|\.conf|\.service|\.in)$' |
		grep -v -E '^(build|tests/data|tests/fuzz/corpus)/' | sort -u |
		while read -r file; do [ ! -f "$file" ] || echo "$file"; done
}

untagged=""
unknown=""
wrong=""
while read -r file; do
	tag=$(head -n 3 "$file" | sed -n 's/.*SPDX-License-Identifier: *//p' | sed 's| *\*/.*||' | head -n 1)
	if [ -z "$tag" ]; then
		untagged+=${untagged:+$'\n'}$file
		continue
	fi
	for id in $(tr -d '()' <<<"$tag" | sed -E 's/\b(OR|AND|WITH)\b/ /g'); do
		[ -f "LICENSES/$id.txt" ] || unknown+=${unknown:+$'\n'}"$file: $id"
	done
	case $file in
	uapi/*)	[ "$tag" = "(GPL-2.0-only WITH Linux-syscall-note) OR MIT" ] ||
			wrong+=${wrong:+$'\n'}"$file: $tag" ;;
	esac
done < <(sources)

report 1 "every source file has an SPDX licence tag" "$untagged"
report 2 "every licence named is in LICENSES/" "$unknown"
report 3 "uapi headers are (GPL-2.0-only WITH Linux-syscall-note) OR MIT" "$wrong"
echo "1..3"
exit $failed
