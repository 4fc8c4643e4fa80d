/* SPDX-License-Identifier: MIT */
/* The filters delay and fault, over a store and on a reactor made of a few lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "config/config.h"
#include "core/timer.h"
#include "filters/fault.h"

#define MS 1000000ull

extern const struct kvb_store_ops kvb_delay_ops, kvb_fault_ops;

/* ---- A reactor and the core's part of an operation's life ---- */

struct kvb_reactor {
	uint64_t now;
	struct kvb_timers timers;
};

static struct kvb_reactor reactor;

uint64_t kvb_now(const struct kvb_reactor *r)
{
	return r->now;
}

void kvb_timer_arm(struct kvb_reactor *r, struct kvb_timer *t, uint64_t when)
{
	kvb_timers_arm(&r->timers, t, when);
}

void kvb_timer_cancel(struct kvb_reactor *r, struct kvb_timer *t)
{
	kvb_timers_cancel(&r->timers, t);
}

static unsigned int finished;	/* operations answered */

static void call(struct kvb_store *st, struct kvb_op *op)
{
	static const size_t entry[32] = {
		[GKV_OP_FLUSH] = offsetof(struct kvb_store_ops, flush),
		[GKV_OP_STORE] = offsetof(struct kvb_store_ops, store),
		[GKV_OP_RETRIEVE] = offsetof(struct kvb_store_ops, retrieve),
		[GKV_OP_LIST] = offsetof(struct kvb_store_ops, list),
		[GKV_OP_DELETE] = offsetof(struct kvb_store_ops, delete),
		[GKV_OP_EXIST] = offsetof(struct kvb_store_ops, exist),
	};

	for (; st; st = st->next) {
		kvb_op_fn fn;

		memcpy(&fn, (const char *)st->ops + entry[op->opcode], sizeof(fn));
		if (!fn)
			continue;
		op->layer = st->layer;
		fn(st, op);
		return;
	}
	fail_msg("no layer takes opcode %02x", op->opcode);
}

void kvb_op_forward(struct kvb_store *st, struct kvb_op *op, kvb_op_fn done)
{
	if (done) {
		op->frames[op->nframes].st = st;
		op->frames[op->nframes++].done = done;
	}
	call(st->next, op);
}

void kvb_op_complete(struct kvb_op *op, uint16_t status)
{
	assert_false(op->completed);
	op->status = status;
	if (op->nframes) {
		op->nframes--;
		op->layer = op->frames[op->nframes].st->layer;
		op->frames[op->nframes].done(op->frames[op->nframes].st, op);
		return;
	}
	op->completed = true;
	finished++;
}

/* ---- The store ---- */

static struct {
	bool hold;		/* keep operations */
	bool cancellable;
	uint16_t status;
	unsigned int seen, cancels;
	struct kvb_op *held;
	uint8_t value[64];	/* of the last Store */
} bottom;

static void bottom_any(struct kvb_store *st, struct kvb_op *op)
{
	(void)st;
	bottom.seen++;
	if (op->opcode == GKV_OP_STORE && op->len)
		memcpy(bottom.value, op->data, op->len);
	bottom.held = op;
	if (!bottom.hold)
		kvb_op_complete(op, bottom.status);
}

static bool bottom_cancel(struct kvb_store *st, struct kvb_op *op)
{
	(void)st;
	bottom.cancels++;
	if (bottom.cancellable)
		kvb_op_complete(op, KVB_TIMED_OUT);
	return bottom.cancellable;
}

static const struct kvb_store_ops bottom_ops = {
	.name = "bottom",
	.store = bottom_any,
	.retrieve = bottom_any,
	.delete = bottom_any,
	.exist = bottom_any,
	.list = bottom_any,
	.flush = bottom_any,
	.cancel = bottom_cancel,
};

/* A filter that looks at nothing but Flush. */
static void idle_flush(struct kvb_store *st, struct kvb_op *op)
{
	kvb_op_forward(st, op, NULL);
}

static bool idle_cancel(struct kvb_store *st, struct kvb_op *op)
{
	(void)st;
	(void)op;
	fail_msg("a layer that passed the operation through is asked to cancel it");
	return false;
}

static const struct kvb_store_ops idle_ops = {
	.name = "idle",
	.flags = KVB_STORE_FILTER,
	.flush = idle_flush,
	.cancel = idle_cancel,
};

/* ---- A stack: the filter under test, one that is idle, the store ---- */

static struct kvb_store layers[3];
static struct kvb_op *op;
static struct kvb_conf conf;
static uint8_t value[64];
static struct iovec segs[2];

static int open_filter(const struct kvb_store_ops *ops, const char *const *keys)
{
	static const struct kvb_conf empty;
	struct kvb_err err;
	int ret;

	conf = empty;
	for (; *keys; keys += 2)
		assert_int_equal(kvb_conf_add(&conf, keys[0], keys[1], 1, KVB_ORIGIN_FILE, &err), 0);
	memset(layers, 0, sizeof(layers));
	for (int i = 0; i < 3; i++) {
		layers[i].layer = i;
		layers[i].next = i < 2 ? &layers[i + 1] : NULL;
	}
	layers[0].ops = ops;
	layers[1].ops = &idle_ops;
	layers[2].ops = &bottom_ops;
	memset(&err, 0, sizeof(err));
	ret = ops->open(&layers[0], &conf, &err);
	if (ret)
		assert_true(strlen(err.text) > 0);
	memset(&bottom, 0, sizeof(bottom));
	reactor.now = 1000 * MS;
	finished = 0;
	return ret;
}

#define OPEN(ops, ...) open_filter(ops, (const char *const[]){ __VA_ARGS__, NULL })

static int end(void **state)
{
	(void)state;
	if (layers[0].ops && layers[0].priv)
		layers[0].ops->close(&layers[0]);
	memset(layers, 0, sizeof(layers));
	kvb_conf_clear(&conf);
	free(op);
	op = NULL;
	/* Nothing may stay armed. */
	return reactor.timers.n ? -1 : 0;
}

static void submit(uint8_t opcode, const char *key)
{
	free(op);
	op = calloc(1, sizeof(*op) + layers[0].ops->op_size);
	assert_non_null(op);
	/* A layer finds whatever was there. */
	memset(op->priv, 0xa5, layers[0].ops->op_size);
	op->opcode = opcode;
	op->klen = strlen(key);
	memcpy(op->key, key, op->klen);
	op->r = &reactor;
	op->result = op->len = sizeof(value);
	memset(value, 0, sizeof(value));
	if (opcode == GKV_OP_STORE) {
		op->data = value;
	} else if (opcode == GKV_OP_RETRIEVE) {
		segs[0] = (struct iovec){ NULL, 4 };
		segs[1] = (struct iovec){ value, 10 };
		op->segs = segs;
		op->nsegs = 2;
	}
	call(&layers[0], op);
}

static void sleep_ns(uint64_t ns)
{
	reactor.now += ns;
	kvb_timers_run(&reactor.timers, reactor.now);
}

/* What the core does when a deadline passes. */
static bool expire(void)
{
	op->late = true;
	return layers[op->layer].ops->cancel(&layers[op->layer], op);
}

static const uint8_t opcodes[] = {
	GKV_OP_FLUSH, GKV_OP_STORE, GKV_OP_RETRIEVE, GKV_OP_LIST, GKV_OP_DELETE, GKV_OP_EXIST,
};

/* ---- delay ---- */

static void test_delay(void **state)
{
	static const char *const names[] = {
		"flush", "store", "retrieve", "list", "delete", "exist",
	};

	(void)state;
	for (int i = 0; i < 6; i++) {
		assert_int_equal(OPEN(&kvb_delay_ops, names[i], "3ms"), 0);
		for (int j = 0; j < 6; j++) {
			bottom.status = GKV_SC_KEY_EXISTS;
			submit(opcodes[j], "k");
			assert_int_equal(op->completed, i != j);
			sleep_ns(3 * MS - 1);
			assert_int_equal(op->completed, i != j);
			sleep_ns(1);
			assert_true(op->completed);
			assert_int_equal(op->status, GKV_SC_KEY_EXISTS);
		}
		assert_int_equal(bottom.seen, 6);
		assert_int_equal(finished, 6);
		assert_int_equal(end(NULL), 0);
	}
}

static void test_delay_jitter(void **state)
{
	uint64_t when[2][50], lo = UINT64_MAX, hi = 0;

	(void)state;
	for (int run = 0; run < 2; run++) {
		assert_int_equal(OPEN(&kvb_delay_ops, "exist", "2ms", "jitter", "1ms",
				      "seed", "7"), 0);
		for (int i = 0; i < 50; i++) {
			submit(GKV_OP_EXIST, "k");
			when[run][i] = kvb_timers_next(&reactor.timers) - reactor.now;
			assert_in_range(when[run][i], 2 * MS, 3 * MS);
			lo = when[run][i] < lo ? when[run][i] : lo;
			hi = when[run][i] > hi ? when[run][i] : hi;
			sleep_ns(3 * MS);
			assert_true(op->completed);
		}
		assert_int_equal(end(NULL), 0);
	}
	assert_memory_equal(when[0], when[1], sizeof(when[0]));
	assert_true(hi - lo > MS / 2);
}

static void test_delay_cancel(void **state)
{
	(void)state;
	assert_int_equal(OPEN(&kvb_delay_ops, "store", "10ms"), 0);
	submit(GKV_OP_STORE, "k");
	assert_true(expire());
	assert_true(op->completed);
	assert_int_equal(op->status, KVB_TIMED_OUT);
	assert_int_equal(reactor.timers.n, 0);
	sleep_ns(20 * MS);
	assert_int_equal(bottom.seen, 0);
	assert_int_equal(finished, 1);

	/* Passed on: the store below, which has it, is asked, not the idle filter between. */
	bottom.hold = true;
	submit(GKV_OP_STORE, "k");
	sleep_ns(10 * MS);
	assert_int_equal(bottom.seen, 1);
	assert_false(kvb_delay_ops.cancel(&layers[0], op));
	assert_int_equal(bottom.cancels, 1);
	assert_false(op->completed);
	bottom.cancellable = true;
	assert_true(kvb_delay_ops.cancel(&layers[0], op));
	assert_int_equal(op->status, KVB_TIMED_OUT);

	/* The same for one that was never held. */
	submit(GKV_OP_EXIST, "k");
	assert_true(kvb_delay_ops.cancel(&layers[0], op));
	assert_int_equal(bottom.cancels, 3);
}

static void test_delay_conf(void **state)
{
	(void)state;
	assert_int_not_equal(OPEN(&kvb_delay_ops, "store", "soon"), 0);
	assert_null(layers[0].priv);
	end(NULL);
	assert_int_not_equal(OPEN(&kvb_delay_ops, "store", "2h"), 0);
	end(NULL);
	assert_int_not_equal(OPEN(&kvb_delay_ops, "seed", "x"), 0);
}

/* ---- fault ---- */

static void test_fault_status(void **state)
{
	static const struct {
		const char *rule;
		uint8_t opcode;
		uint16_t status;
	} cases[] = {
		{ "retrieve:eio", GKV_OP_RETRIEVE, GKV_SC_UNRECOVERED },
		{ "store:eio", GKV_OP_STORE, GKV_SC_WRITE_FAULT },
		{ "delete:eio", GKV_OP_DELETE, GKV_SC_WRITE_FAULT },
		{ "store:enospc", GKV_OP_STORE, GKV_SC_CAPACITY },
		{ "store:edquot", GKV_OP_STORE, GKV_SC_CAPACITY },
		{ "exist:eacces", GKV_OP_EXIST, GKV_SC_ACCESS_DENIED },
		{ "exist:eperm", GKV_OP_EXIST, GKV_SC_ACCESS_DENIED },
		{ "store:erofs", GKV_OP_STORE, GKV_SC_WRITE_PROTECTED },
		{ "list:etimedout", GKV_OP_LIST, GKV_SC_TRANSIENT },
		{ "flush:enotconn", GKV_OP_FLUSH, GKV_SC_TRANSIENT },
		{ "*:eagain", GKV_OP_EXIST, GKV_SC_TRANSIENT },
		{ "store:efbig", GKV_OP_STORE, GKV_SC_VALUE_SIZE },
		{ "retrieve:efault", GKV_OP_RETRIEVE, GKV_SC_DATA_TRANSFER },
		{ "*:enomem", GKV_OP_STORE, GKV_SC_INTERNAL },
		{ "*:status=0x4088", GKV_OP_RETRIEVE, GKV_SC_UNRECOVERED | GKV_DNR },
		{ "*:status=0x281", GKV_OP_FLUSH, 0x281 },
		{ "*:status=130", GKV_OP_EXIST, GKV_SC_NS_NOT_READY },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(OPEN(&kvb_fault_ops, "rules", cases[i].rule), 0);
		submit(cases[i].opcode, "k");
		assert_true(op->completed);
		assert_int_equal(op->status, cases[i].status);
		/* A failure leaves the old value: nothing has happened. */
		assert_int_equal(bottom.seen, 0);
		assert_int_equal(end(NULL), 0);
	}
}

static void test_fault_selects(void **state)
{
	(void)state;
	for (int i = 0; i < 6; i++) {
		assert_int_equal(OPEN(&kvb_fault_ops, "rules", "store:eio delete:enospc"), 0);
		submit(opcodes[i], "k");
		assert_int_equal(op->status, opcodes[i] == GKV_OP_STORE ? GKV_SC_WRITE_FAULT :
				 opcodes[i] == GKV_OP_DELETE ? GKV_SC_CAPACITY : 0);
		end(NULL);
	}
	assert_int_equal(OPEN(&kvb_fault_ops, "rules", "*:eio:key=ab *:enospc:key=0x6100"), 0);
	submit(GKV_OP_EXIST, "ab");
	assert_int_equal(op->status, GKV_SC_UNRECOVERED);
	submit(GKV_OP_EXIST, "abc");
	assert_int_equal(op->status, GKV_SC_UNRECOVERED);
	submit(GKV_OP_EXIST, "a");	/* its bytes go on with zeroes, its key does not */
	assert_int_equal(op->status, 0);
	submit(GKV_OP_EXIST, "xab");
	assert_int_equal(op->status, 0);
	end(NULL);
	/* Without rules it is not there. */
	assert_int_equal(OPEN(&kvb_fault_ops, "seed", "3"), 0);
	submit(GKV_OP_STORE, "k");
	assert_int_equal(op->status, 0);
}

static unsigned int strikes(const char *rule, unsigned int n, char *pattern)
{
	unsigned int hits = 0;

	assert_int_equal(OPEN(&kvb_fault_ops, "rules", rule, "seed", "5"), 0);
	for (unsigned int i = 0; i < n; i++) {
		submit(GKV_OP_EXIST, "k");
		if (op->status)
			hits++;
		if (pattern)
			pattern[i] = op->status ? 'x' : '.';
	}
	end(NULL);
	return hits;
}

static void test_fault_frequency(void **state)
{
	char a[1000], b[1000];
	unsigned int n;

	(void)state;
	assert_int_equal(strikes("*:eio:every=3", 9, a), 3);
	assert_memory_equal(a, "..x..x..x", 9);
	assert_int_equal(strikes("*:eio:after=4", 6, a), 2);
	assert_memory_equal(a, "....xx", 6);
	assert_int_equal(strikes("*:eio:times=2", 6, a), 2);
	assert_memory_equal(a, "xx....", 6);
	assert_int_equal(strikes("*:eio:after=1:every=2:times=2", 9, a), 2);
	assert_memory_equal(a, "..x.x....", 9);
	assert_int_equal(strikes("*:eio:p=0", 1000, NULL), 0);
	assert_int_equal(strikes("*:eio:p=1", 1000, NULL), 1000);
	n = strikes("*:eio:p=0.1", 1000, a);
	assert_in_range(n, 60, 140);
	/* The same seed, the same series. */
	assert_int_equal(strikes("*:eio:p=0.1", 1000, b), n);
	assert_memory_equal(a, b, sizeof(a));
	/* The first rule that strikes counts, the others wait their turn. */
	assert_int_equal(strikes("*:eio:times=1 *:enospc:times=1", 3, a), 2);
}

static void test_fault_slow(void **state)
{
	(void)state;
	assert_int_equal(OPEN(&kvb_fault_ops, "rules", "store:slow=5ms"), 0);
	submit(GKV_OP_STORE, "k");
	assert_int_equal(bottom.seen, 0);
	sleep_ns(5 * MS);
	assert_int_equal(bottom.seen, 1);
	assert_true(op->completed);
	end(NULL);

	assert_int_equal(OPEN(&kvb_fault_ops, "rules", "store:slow=5ms:eio"), 0);
	submit(GKV_OP_STORE, "k");
	sleep_ns(5 * MS - 1);
	assert_false(op->completed);
	sleep_ns(1);
	assert_int_equal(op->status, GKV_SC_WRITE_FAULT);
	assert_int_equal(bottom.seen, 0);
	end(NULL);

	assert_int_equal(OPEN(&kvb_fault_ops, "rules", "store:slow=1ms:slow-after=5ms"), 0);
	bottom.status = GKV_SC_KEY_EXISTS;
	submit(GKV_OP_STORE, "k");
	sleep_ns(MS);
	assert_int_equal(bottom.seen, 1);
	assert_false(op->completed);
	sleep_ns(5 * MS);
	assert_true(op->completed);
	assert_int_equal(op->status, GKV_SC_KEY_EXISTS);
}

static void test_fault_lost(void **state)
{
	(void)state;
	assert_int_equal(OPEN(&kvb_fault_ops, "rules", "store:lost delete:lost-after"), 0);
	submit(GKV_OP_STORE, "k");
	sleep_ns(3600 * 1000 * MS);
	assert_false(op->completed);
	assert_true(expire());
	assert_int_equal(op->status, KVB_TIMED_OUT);
	assert_int_equal(bottom.seen, 0);

	submit(GKV_OP_DELETE, "k");
	assert_int_equal(bottom.seen, 1);
	sleep_ns(3600 * 1000 * MS);
	assert_false(op->completed);
	assert_true(expire());
	assert_int_equal(op->status, KVB_TIMED_OUT);
	assert_int_equal(finished, 2);
}

static void test_fault_cancel(void **state)
{
	static const char *const rules[] = { "*:slow=9ms", "*:slow-after=9ms", "*:lost" };

	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(OPEN(&kvb_fault_ops, "rules", rules[i]), 0);
		submit(GKV_OP_RETRIEVE, "k");
		assert_false(op->completed);
		assert_true(expire());
		assert_int_equal(op->status, KVB_TIMED_OUT);
		assert_int_equal(reactor.timers.n, 0);
		sleep_ns(20 * MS);
		assert_int_equal(finished, 1);
		end(NULL);
	}
	assert_int_equal(OPEN(&kvb_fault_ops, "rules", "*:slow-after=9ms"), 0);
	bottom.hold = true;
	submit(GKV_OP_RETRIEVE, "k");
	assert_false(kvb_fault_ops.cancel(&layers[0], op));
	assert_int_equal(bottom.cancels, 1);
	assert_false(op->completed);
	kvb_op_complete(op, 0);
	sleep_ns(9 * MS);
	assert_true(op->completed);
}

/* The deadline comes once. What reaches the filter after it must not be held any more. */
static void test_fault_late(void **state)
{
	static const char *const rules[] = { "*:lost-after", "*:slow-after=9ms" };

	(void)state;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(OPEN(&kvb_fault_ops, "rules", rules[i]), 0);
		bottom.hold = true;
		submit(GKV_OP_RETRIEVE, "k");
		assert_false(expire());
		kvb_op_complete(op, 0);
		assert_true(op->completed);
		assert_int_equal(op->status, KVB_TIMED_OUT);
		assert_int_equal(reactor.timers.n, 0);
		end(NULL);
	}
}

static unsigned int bits(const uint8_t *p, size_t n)
{
	unsigned int sum = 0;

	while (n--)
		sum += __builtin_popcount(*p++);
	return sum;
}

static void test_fault_flip(void **state)
{
	(void)state;
	assert_int_equal(OPEN(&kvb_fault_ops, "rules", "store:flip retrieve:flip"), 0);
	submit(GKV_OP_STORE, "k");
	assert_int_equal(op->status, 0);
	assert_int_equal(bits(bottom.value, 64), 1);
	submit(GKV_OP_RETRIEVE, "k");
	assert_int_equal(op->status, 0);
	assert_int_equal(bits(value, 10), 1);
	assert_int_equal(bits(value, 64), 1);
	/* Nothing to flip. */
	bottom.status = GKV_SC_KEY_NOT_FOUND;
	submit(GKV_OP_RETRIEVE, "k");
	assert_int_equal(op->status, GKV_SC_KEY_NOT_FOUND);
	assert_int_equal(bits(value, 64), 0);
}

static void test_fault_refused(void **state)
{
	static const char *const bad[] = {
		"eio", "read:eio", "store", "store:", "store:oops", "store:p=0.5", "store:eio:p=2",
		"store:eio:p=-1", "store:eio:p=nan", "store:eio:p=", "store:eio:p=0.1x",
		"store:eio:every=0", "store:eio:every=x", "store:eio:times=0", "store:eio:key=",
		"store:eio:key=0x", "store:eio:key=0x1", "store:eio:key=0xzz",
		"store:eio:key=12345678901234567", "store:eio:enospc:lost", "store:lost:lost-after",
		"store:lost:slow-after=1s", "store:eio:flip", "list:flip", "*:flip",
		"store:slow=", "store:slow=0", "store:slow=fast", "store:status=0",
		"store:status=0x8000", "store:status=0x4000", "store:eio:color=red",
		"store:eio retrieve", "store:lost-after:slow-after=1s",
	};
	char many[KVB_FAULT_MAX_RULES * 8 + 16] = "", longest[200];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (!OPEN(&kvb_fault_ops, "rules", bad[i]))
			fail_msg("accepted: %s", bad[i]);
		assert_null(layers[0].priv);
		end(NULL);
	}
	for (int i = 0; i < KVB_FAULT_MAX_RULES; i++)
		strcat(many, " *:eio");
	assert_int_equal(OPEN(&kvb_fault_ops, "rules", many), 0);
	end(NULL);
	strcat(many, " *:eio");
	assert_int_equal(OPEN(&kvb_fault_ops, "rules", many), -E2BIG);
	end(NULL);
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	assert_int_equal(OPEN(&kvb_fault_ops, "rules", longest), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_delay, end),
		cmocka_unit_test_teardown(test_delay_jitter, end),
		cmocka_unit_test_teardown(test_delay_cancel, end),
		cmocka_unit_test_teardown(test_delay_conf, end),
		cmocka_unit_test_teardown(test_fault_status, end),
		cmocka_unit_test_teardown(test_fault_selects, end),
		cmocka_unit_test_teardown(test_fault_frequency, end),
		cmocka_unit_test_teardown(test_fault_slow, end),
		cmocka_unit_test_teardown(test_fault_lost, end),
		cmocka_unit_test_teardown(test_fault_cancel, end),
		cmocka_unit_test_teardown(test_fault_late, end),
		cmocka_unit_test_teardown(test_fault_flip, end),
		cmocka_unit_test_teardown(test_fault_refused, end),
	};
	int ret = cmocka_run_group_tests(tests, NULL, NULL);

	kvb_timers_destroy(&reactor.timers);
	return ret;
}
