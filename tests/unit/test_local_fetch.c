/* SPDX-License-Identifier: MIT */
/*
 * Whether a disk can read GPU memory is found out by a transfer: one that arrives, one that "works"
 * and brings something else, one that fails. The transfer is played, the rest is the store's own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static ssize_t dma(int fd, const void *buf, size_t n, off_t off);

/* Of all writes only the transfer goes by this. */
#define pwrite dma
#include "stores/local/reach.c"
#undef pwrite

#define BLOCKS	16u
#define UNIT	4096u

static enum { ARRIVES, DIFFERS, SHORT, FAILS } how;

static ssize_t dma(int fd, const void *buf, size_t n, off_t off)
{
	char block[LOC_BLK];

	if (how == FAILS) {
		errno = EREMOTEIO;
		return -1;
	}
	if (how == SHORT)
		return pwrite(fd, buf, n / 2, off);
	assert_int_equal(n, sizeof(block));
	memcpy(block, buf, sizeof(block));
	if (how == DIFFERS)
		block[4000] ^= 1;
	return pwrite(fd, block, sizeof(block), off);
}

static struct loc_store ls = { .unit = UNIT, .scratch = PTHREAD_MUTEX_INITIALIZER };
static struct loc_file file = { .path = "member" };
static char before[BLOCKS * LOC_BLK], mem[LOC_BLK];
static atomic_bool stop;
static const struct kvb_reach to = { .addr = mem, .len = sizeof(mem), .what = "region 1",
				     .stop = &stop };

static void write_file(void)
{
	assert_int_equal(pwrite(file.fd, before, sizeof(before), 0), sizeof(before));
}

/* Nothing but the scratch block may have changed. */
static void check_file(void)
{
	static char now[sizeof(before)];
	size_t scratch = file.sb.size - 2 * LOC_BLK;

	assert_int_equal(pread(file.fd, now, sizeof(now), 0), sizeof(now));
	assert_memory_equal(now, before, scratch);
	assert_memory_equal(now + scratch + LOC_BLK, before + scratch + LOC_BLK, LOC_BLK);
}

static bool try_it(void)
{
	static char want[LOC_BLK], got[LOC_BLK];

	write_file();
	memcpy(want, mem, sizeof(want));
	return may_fetch(&ls, &file, &to, want, got);
}

static void test_transfers(void **state)
{
	(void)state;
	for (how = ARRIVES; how <= FAILS; how++) {
		assert_int_equal(try_it(), how == ARRIVES);
		check_file();
	}
	how = ARRIVES;
}

/* A set that was made when there was no such block: its last unit is there. */
static void test_no_room(void **state)
{
	const uint64_t units = file.sb.units;

	(void)state;
	file.sb.units++;
	assert_false(try_it());
	file.sb.units = units;
	check_file();
	assert_true(try_it());
}

static void test_nobody_waits(void **state)
{
	(void)state;
	atomic_store(&stop, true);
	assert_false(try_it());
	atomic_store(&stop, false);
}

static int begin(void **state)
{
	(void)state;
	file.fd = memfd_create("member", MFD_CLOEXEC);
	file.sb.size = sizeof(before);
	file.sb.data_off = 4 * LOC_BLK;
	file.sb.units = BLOCKS - 6;
	for (size_t i = 0; i < sizeof(before); i++)
		before[i] = (char)(i * 31 + i / LOC_BLK);
	for (size_t i = 0; i < sizeof(mem); i++)
		mem[i] = (char)(i * 7 + 3);
	kvb_log_set_level(KVB_LOG_ERR);
	return file.fd < 0;
}

static int end(void **state)
{
	(void)state;
	return close(file.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_transfers),
					     cmocka_unit_test(test_no_room),
					     cmocka_unit_test(test_nobody_waits) };

	return cmocka_run_group_tests(tests, begin, end);
}
