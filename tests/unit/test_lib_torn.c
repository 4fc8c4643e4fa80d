/* SPDX-License-Identifier: MIT */
/*
 * Torn completions (F2, F3, F4, F6). The reader of libgkv is run with the writer's steps
 * forced in between its loads, and next to writers on another CPU. The same tests are
 * run with a reader that copies the entry first and looks at the phase then, and with
 * a writer that stores the phase first: both must be caught, or the tests prove nothing.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static void hook(int point);
#define GKVI_CQE_HOOK(point) hook(point)
#include "../../lib/src/cqe.h"

/* What the hook does when the reader comes by point @at. */
static struct {
	int at;
	void (*fn)(void);
} step = { .at = -1 };

/* How long a reader dawdles at its points, so that the writer gets in between. */
static unsigned int dawdle;

static void pause_for(unsigned int n)
{
	while (n--)
		cpu_relax();
}

static void hook(int point)
{
	pause_for(dawdle);
	if (step.at == point && step.fn) {
		void (*fn)(void) = step.fn;

		step.fn = NULL;
		fn();
	}
}

static _Alignas(16) struct gkv_cqe entry;

typedef bool reader_fn(const struct gkv_cqe *e, uint32_t phase, struct cqe_image *out);
typedef void writer_fn(struct gkv_cqe *e, uint32_t n, unsigned int delay);

/* The mistake: one copy of the entry, then the phase test, then the copy is used. */
static bool broken_reader(const struct gkv_cqe *e, uint32_t phase, struct cqe_image *out)
{
	const uint32_t *dw = (const uint32_t *)e;
	uint32_t dw2, dw3;

	out->dw0 = load_relaxed(&dw[0]);
	out->dw1 = load_relaxed(&dw[1]);
	dw2 = load_relaxed(&dw[2]);
	hook(0);
	dw3 = load_acquire(&dw[3]);
	if (((dw3 >> 16) & 1) != phase)
		return false;
	hook(1);
	out->sqhd = dw2 & 0xffff;
	out->sqid = dw2 >> 16;
	out->cid = dw3 & 0xffff;
	out->status = dw3 >> 17;
	return true;
}

static bool good_reader(const struct gkv_cqe *e, uint32_t phase, struct cqe_image *out)
{
	return cqe_read(e, phase, out);
}

/* Completion @n: every field follows from @n, its phase is the lowest bit of @n. */
static void good_writer(struct gkv_cqe *e, uint32_t n, unsigned int delay)
{
	uint32_t *dw = (uint32_t *)e;

	store_relaxed(&dw[0], n);
	store_relaxed(&dw[1], ~n);
	store_relaxed(&dw[2], n & 0xffff);
	pause_for(delay);
	store_release(&dw[3], (n & 0xffff) | (n & 1) << 16);
}

/* The injector: dwords 0 to 2 come late. */
static void broken_writer(struct gkv_cqe *e, uint32_t n, unsigned int delay)
{
	uint32_t *dw = (uint32_t *)e;

	store_release(&dw[3], (n & 0xffff) | (n & 1) << 16);
	pause_for(delay);
	store_release(&dw[0], n);
	store_release(&dw[1], ~n);
	store_release(&dw[2], n & 0xffff);
}

static bool torn(const struct cqe_image *i, uint32_t n)
{
	return i->dw0 != n || i->dw1 != ~n || i->sqhd != (n & 0xffff) || i->cid != (n & 0xffff);
}

/* ---- Forced interleavings ---- */

static void write_three(void)
{
	good_writer(&entry, 3, 0);
}

static void write_head_of_three(void)
{
	uint32_t *dw = (uint32_t *)&entry;

	store_relaxed(&dw[0], 3);
	store_relaxed(&dw[1], ~3u);
	store_relaxed(&dw[2], 3);
}

/* The whole entry is written while the reader is at @point: 1 torn, 0 right, -1 not seen. */
static int interleave(reader_fn *reader, int point, void (*write)(void))
{
	struct cqe_image i = { 0 };

	good_writer(&entry, 2, 0);	/* phase 0: the pass before */
	step.at = point;
	step.fn = write;
	if (!reader(&entry, 1, &i))
		return -1;
	return torn(&i, 3);
}

static void test_forced(void **state)
{
	struct cqe_image i;

	(void)state;
	assert_int_equal(interleave(good_reader, 0, write_three), 0);
	assert_int_equal(interleave(good_reader, 0, write_head_of_three), -1);
	assert_int_equal(interleave(good_reader, -1, NULL), -1);
	/* Nothing is delivered from an entry that is not there. */
	memset(&i, 0x77, sizeof(i));
	good_writer(&entry, 2, 0);
	assert_false(cqe_read(&entry, 1, &i));
	assert_int_equal(i.dw0, 0x77777777);
}

/* The same interleaving makes the reader without the second read deliver a stale length. */
static void test_forced_catches_broken_reader(void **state)
{
	(void)state;
	assert_int_equal(interleave(broken_reader, 0, write_three), 1);
}

/* ---- Two CPUs ---- */

struct race {
	struct gkv_cqe *ring;
	uint32_t depth;
	writer_fn *writer;
	unsigned int delay;
	uint32_t seen;		/* completions read so far */
	bool stop;
};

/* Writes ahead of the reader by less than the ring. */
static void *race_writer(void *arg)
{
	struct race *r = arg;

	for (uint32_t n = 0;; n++) {
		uint32_t v = (n / r->depth & 1) ? n << 1 : n << 1 | 1;

		while (n - load_acquire(&r->seen) >= r->depth - 1)
			if (load_relaxed(&r->stop))
				return NULL;
		r->writer(&r->ring[n % r->depth], v, n % 7 * r->delay);
	}
	return NULL;
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/*
 * Whether a completion was torn within @ms. By the clock, since on a loaded machine the two
 * threads may have to wait for a CPU at every turn.
 */
static bool run_race(reader_fn *reader, writer_fn *writer, unsigned int delay,
		     unsigned int slow, uint64_t ms)
{
	struct race r = { .depth = 8, .writer = writer, .delay = delay };
	uint64_t end = now_ms() + ms;
	bool bad = false;
	pthread_t t;

	dawdle = slow;
	r.ring = aligned_alloc(64, r.depth * sizeof(*r.ring));
	assert_non_null(r.ring);
	memset(r.ring, 0, r.depth * sizeof(*r.ring));
	assert_int_equal(pthread_create(&t, NULL, race_writer, &r), 0);
	for (uint32_t n = 0; !bad && (n % 64 || now_ms() < end); n++) {
		uint32_t phase = !(n / r.depth & 1);
		uint32_t v = phase ? n << 1 | 1 : n << 1;
		struct cqe_image i;

		while (!reader(&r.ring[n % r.depth], phase, &i))
			cpu_relax();
		bad = torn(&i, v);
		store_release(&r.seen, n + 1);
	}
	store_relaxed(&r.stop, true);
	pthread_join(t, NULL);
	free(r.ring);
	dawdle = 0;
	return bad;
}

static void test_race(void **state)
{
	(void)state;
	assert_false(run_race(good_reader, good_writer, 0, 0, 400));
	assert_false(run_race(good_reader, good_writer, 5, 0, 400));
	assert_false(run_race(good_reader, good_writer, 1, 5, 400));
}

/* The mistakes are caught by the same race, given time. */
static void test_race_catches_broken_writer(void **state)
{
	(void)state;
	assert_true(run_race(good_reader, broken_writer, 50, 0, 40000));
}

static void test_race_catches_broken_reader(void **state)
{
	(void)state;
	assert_true(run_race(broken_reader, good_writer, 1, 5, 40000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forced),
		cmocka_unit_test(test_forced_catches_broken_reader),
		cmocka_unit_test(test_race),
		cmocka_unit_test(test_race_catches_broken_writer),
		cmocka_unit_test(test_race_catches_broken_reader),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
