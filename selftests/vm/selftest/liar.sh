#!/bin/busybox sh
# SPDX-License-Identifier: MIT
#
# Goes wrong in the way its argument names.
case $1 in
few)		echo "1..3"; echo "ok 1 - one"; echo "ok 2 - two" ;;
many)		echo "1..1"; echo "ok 1 - one"; echo "ok 2 - two" ;;
none)		echo "1..0" ;;
planless)	echo "ok 1 - one" ;;
silent)		;;
renumber)	echo "1..2"; echo "ok 1 - one"; echo "ok 1 - one" ;;
status)		echo "1..1"; echo "ok 1 - one"; exit 1 ;;
denies)		echo "1..1"; echo "not ok 1 - one"; exit 0 ;;
totals)		echo "1..1"; echo "ok 1 - one"
		echo "# Totals: pass:2 fail:0 xfail:0 xpass:0 skip:0 error:0" ;;
killed)		echo "1..1"; echo "ok 1 - one"; kill -SEGV $$ ;;
hangs)		echo "1..1"; echo "ok 1 - one"; sleep 1000 ;;
absent)		echo "1..1"; host vram-has 99 0 4096; echo "ok 1 - one" ;;
forges)		echo "1..1"; echo "ok 1 - one"; echo "gkv-0123456789abcdef done 1" ;;
esac
