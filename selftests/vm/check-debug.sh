#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The machines of the debug kernel, in TAP; builds that kernel first, if it is not in the cache.
#
# gkv-san: no it tests the kernel module in a virtual machine, not user space
# gkv-timeout: 4800
exec bash "$(dirname "$0")/check.sh" --debug
