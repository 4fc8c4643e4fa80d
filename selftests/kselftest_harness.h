/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's harness with a longer limit for each test. Half a minute is too short for an emulated
 * machine on a host with other work, and says nothing of the module; what truly hangs ends by the
 * program's limit in the machine (vm.py --program-limit), which names it, too.
 */
#include_next "kselftest_harness.h"

#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	120
