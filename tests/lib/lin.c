/* SPDX-License-Identifier: MIT */
/*
 * The checker of lin.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lin.h"
#include "rig.h"

#define STEP_LIMIT 50000000ull

/* Calls and returns in the order of time, as a list from which both can be taken out. */
struct event {
	struct event *prev, *next;
	struct event *ret;		/* of a call: its return, NULL if it never came */
	uint64_t time;
	uint32_t op;
	bool is_call;
};

/* A position of the search: which operations have happened, and the value after them. */
struct pos {
	uint64_t h[2];			/* of the set of operations; h[0] 0: unused slot */
	uint64_t value;
};

struct search {
	struct lin_op *ops;		/* values numbered from 1 */
	size_t n;
	uint32_t *reads;		/* of each value: Retrieves yet to happen */
	struct event *events, head;
	struct frame {
		struct event *call;
		uint64_t value;
		bool forced;		/* nothing to try in its place */
	} *stack;
	size_t depth;
	struct pos *seen;		/* open addressing */
	size_t cap, used;
	uint64_t h[2];
	uint64_t value;
	uint32_t returns;		/* still in the list */
};

const char *lin_kind_name(uint8_t kind)
{
	static const char *const names[LIN_NKINDS] = {
		"Store", "Store new", "Store over", "Retrieve",
		"Delete", "Delete existing", "Exist",
	};

	return kind < LIN_NKINDS ? names[kind] : "?";
}

static void *must(void *p)
{
	if (!p) {
		tap_diag("lin: out of memory");
		exit(1);
	}
	return p;
}

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* Whether @op may happen now, and what the key holds afterwards. */
static bool apply(const struct lin_op *op, uint64_t value, uint64_t *after)
{
	bool exists = value != LIN_ABSENT_VALUE;
	/* Unknown: if it happened at all, it succeeded. */
	bool ok = op->outcome == LIN_OK || op->outcome == LIN_UNKNOWN;

	*after = value;
	switch (op->kind) {
	case LIN_STORE:
		*after = op->value;
		return ok;
	case LIN_CREATE:
		if (!ok)
			return op->outcome == LIN_KEY_EXISTS && exists;
		*after = op->value;
		return !exists;
	case LIN_REPLACE:
		if (!ok)
			return op->outcome == LIN_NO_KEY && !exists;
		*after = op->value;
		return exists;
	case LIN_RETRIEVE:
		return ok ? value == op->value : op->outcome == LIN_NO_KEY && !exists;
	case LIN_DELETE:
		*after = LIN_ABSENT_VALUE;
		return ok;
	case LIN_DELETE_EXISTING:
		if (!ok)
			return op->outcome == LIN_NO_KEY && !exists;
		*after = LIN_ABSENT_VALUE;
		return exists;
	case LIN_EXIST:
		return ok ? exists : op->outcome == LIN_NO_KEY && !exists;
	}
	return false;
}

/* ---- Positions seen ---- */

/* Where the position is, or the free slot where it goes. */
static size_t find_slot(const struct pos *seen, size_t cap, const struct pos *p)
{
	size_t i = (size_t)mix(p->h[0] ^ p->value) & (cap - 1);

	while (seen[i].h[0] && (seen[i].h[0] != p->h[0] || seen[i].h[1] != p->h[1] ||
				seen[i].value != p->value))
		i = (i + 1) & (cap - 1);
	return i;
}

static void grow(struct search *s)
{
	size_t cap = s->cap ? s->cap * 2 : 1024;
	struct pos *seen = must(calloc(cap, sizeof(*seen)));

	for (size_t i = 0; i < s->cap; i++) {
		if (s->seen[i].h[0])
			seen[find_slot(seen, cap, &s->seen[i])] = s->seen[i];
	}
	free(s->seen);
	s->seen = seen;
	s->cap = cap;
}

/* Remember the position; false when it was known. 128 bits stand for the set. */
static bool remember(struct search *s, const struct pos *p)
{
	size_t i;

	if (s->used * 2 >= s->cap)
		grow(s);
	i = find_slot(s->seen, s->cap, p);
	if (s->seen[i].h[0])
		return false;
	s->seen[i] = *p;
	s->used++;
	return true;
}

/* ---- The list ---- */

static void take_out(struct event *e)
{
	e->prev->next = e->next;
	if (e->next)
		e->next->prev = e->prev;
}

static void put_back(struct event *e)
{
	e->prev->next = e;
	if (e->next)
		e->next->prev = e;
}

/* Whether @op returned a value, and no other store can have written the same. */
static bool is_read(const struct lin_op *op)
{
	return op->kind == LIN_RETRIEVE && op->outcome == LIN_OK;
}

static void lift(struct search *s, struct event *call)
{
	if (is_read(&s->ops[call->op]))
		s->reads[s->ops[call->op].value]--;
	take_out(call);
	if (call->ret) {
		take_out(call->ret);
		s->returns--;
	}
}

static void unlift(struct search *s, struct event *call)
{
	if (is_read(&s->ops[call->op]))
		s->reads[s->ops[call->op].value]++;
	/* In the opposite order of taking out. */
	if (call->ret) {
		put_back(call->ret);
		s->returns++;
	}
	put_back(call);
}

static int by_time(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	/* At the same moment they overlap. */
	if (x->is_call != y->is_call)
		return x->is_call ? -1 : 1;
	return x->op < y->op ? -1 : x->op > y->op;
}

static void build_list(struct search *s)
{
	struct event **calls = must(calloc(s->n + 1, sizeof(struct event *)));
	size_t n = 0;

	s->events = must(calloc(2 * s->n + 1, sizeof(*s->events)));
	for (size_t i = 0; i < s->n; i++) {
		const struct lin_op *op = &s->ops[i];

		/* A read nobody saw the result of. */
		if (op->outcome == LIN_UNKNOWN &&
		    (op->kind == LIN_RETRIEVE || op->kind == LIN_EXIST))
			continue;
		s->events[n++] = (struct event){ .time = op->call, .op = (uint32_t)i,
						 .is_call = true };
		if (op->outcome != LIN_UNKNOWN)
			s->events[n++] = (struct event){ .time = op->ret, .op = (uint32_t)i };
	}
	qsort(s->events, n, sizeof(*s->events), by_time);
	s->head.next = NULL;
	for (size_t i = 0; i < n; i++) {
		struct event *e = &s->events[i];

		e->prev = i ? e - 1 : &s->head;
		e->prev->next = e;
		e->next = NULL;
		if (e->is_call) {
			calls[e->op] = e;
		} else {
			calls[e->op]->ret = e;
			s->returns++;
		}
	}
	free(calls);
}

/* ---- The search ---- */

static int by_call(const void *a, const void *b)
{
	const struct lin_op *x = a, *y = b;

	return x->call < y->call ? -1 : x->call > y->call;
}

/* Whether @op changes nothing whenever it happens. */
static bool is_pure(const struct lin_op *op)
{
	return op->kind == LIN_RETRIEVE || op->kind == LIN_EXIST || op->outcome == LIN_NO_KEY ||
	       op->outcome == LIN_KEY_EXISTS;
}

static void toggle(struct search *s, const struct event *call)
{
	s->h[0] ^= mix(2 * (uint64_t)call->op + 1);
	s->h[1] ^= mix(~(uint64_t)call->op);
}

/* Let @call happen, unless that leads where the search has been. */
static bool happen(struct search *s, struct event *call, bool forced)
{
	struct pos p;

	if (!apply(&s->ops[call->op], s->value, &p.value))
		return false;
	/* A value that is replaced never comes back: nobody may be left to read it. */
	if (p.value != s->value && s->reads[s->value])
		return false;
	toggle(s, call);
	p.h[0] = s->h[0] ? s->h[0] : 1;
	p.h[1] = s->h[1];
	if (!forced && !remember(s, &p)) {
		toggle(s, call);
		return false;
	}
	s->stack[s->depth++] = (struct frame){ call, s->value, forced };
	s->value = p.value;
	lift(s, call);
	return true;
}

/*
 * What changes nothing and fits now may as well happen now: any order in which it comes
 * later is right with it here, too.
 */
static void pure_ones(struct search *s)
{
	for (struct event *e = s->head.next; e && e->is_call; e = e->next) {
		if (is_pure(&s->ops[e->op]) && happen(s, e, true))
			e = &s->head;	/* a return may have come to the front */
	}
}

/* Undo the last choice: where to go on from, NULL when there was none. */
static struct event *backtrack(struct search *s)
{
	while (s->depth) {
		struct frame *f = &s->stack[--s->depth];

		s->value = f->value;
		toggle(s, f->call);
		unlift(s, f->call);
		if (!f->forced)
			return f->call;
	}
	return NULL;
}

static enum lin_verdict search(struct search *s, uint64_t limit, size_t *stuck)
{
	struct event *e;
	uint64_t steps = 0;

	pure_ones(s);
	e = s->head.next;
	/* Calls without a return may be left over: those never happened. */
	while (s->returns) {
		if (++steps > limit)
			return LIN_GAVE_UP;
		if (e && e->is_call) {
			if (!is_pure(&s->ops[e->op]) && happen(s, e, false)) {
				pure_ones(s);
				e = s->head.next;
			} else {
				e = e->next;
			}
			continue;
		}
		/* A return, or the end: whatever is called before it does not fit. */
		if (e && stuck && (*stuck == SIZE_MAX || e->time > s->ops[*stuck].ret))
			*stuck = e->op;
		e = backtrack(s);
		if (!e)
			return LIN_BAD;
		e = e->next;
	}
	return LIN_GOOD;
}

static int by_value(const void *a, const void *b)
{
	const struct lin_op *x = *(struct lin_op *const *)a, *y = *(struct lin_op *const *)b;

	return x->value < y->value ? -1 : x->value > y->value;
}

/* Give the values numbers in place of themselves, and count who reads each. */
static void number_values(struct search *s)
{
	struct lin_op **order = must(calloc(s->n + 1, sizeof(*order)));
	uint64_t last = LIN_ABSENT_VALUE, number = LIN_ABSENT_VALUE;

	s->reads = must(calloc(s->n + 1, sizeof(*s->reads)));
	for (size_t i = 0; i < s->n; i++)
		order[i] = &s->ops[i];
	qsort(order, s->n, sizeof(*order), by_value);
	for (size_t i = 0; i < s->n; i++) {
		if (order[i]->value != last) {
			last = order[i]->value;
			number++;
		}
		order[i]->value = number;
		if (is_read(order[i]))
			s->reads[number]++;
	}
	free(order);
}

enum lin_verdict lin_check_key(struct lin_op *ops, size_t n, uint64_t limit, size_t *stuck)
{
	struct search s = { .n = n, .value = LIN_ABSENT_VALUE };
	enum lin_verdict verdict;

	if (stuck)
		*stuck = SIZE_MAX;
	qsort(ops, n, sizeof(*ops), by_call);
	s.ops = must(calloc(n + 1, sizeof(*s.ops)));
	if (n)
		memcpy(s.ops, ops, n * sizeof(*ops));
	number_values(&s);
	build_list(&s);
	s.stack = must(calloc(n + 1, sizeof(*s.stack)));
	verdict = search(&s, limit, stuck);
	free(s.ops);
	free(s.reads);
	free(s.events);
	free(s.stack);
	free(s.seen);
	return verdict;
}

/* ---- Whole histories ---- */

static int by_key(const void *a, const void *b)
{
	const struct lin_op *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return by_call(a, b);
}

static void show_op(const struct lin_op *op, uint64_t zero, bool mark)
{
	static const char *const outcomes[] = { "ok", "no such key", "key exists", "unknown" };

	tap_diag("%s%-15s %#-16llx %-11s from %lld to %lld us", mark ? "> " : "  ",
		 lin_kind_name(op->kind), (unsigned long long)op->value, outcomes[op->outcome & 3],
		 (long long)(op->call - zero) / 1000,
		 op->ret == LIN_NEVER ? -1 : (long long)(op->ret - zero) / 1000);
}

/* What came before @at, and where its value comes from. */
static void show(const struct lin_op *ops, size_t n, size_t at)
{
	size_t from = at > 16 ? at - 16 : 0;
	uint64_t zero = ops[0].call;

	for (size_t i = 0; i < from; i++) {
		if (ops[at].value && ops[i].value == ops[at].value)
			show_op(&ops[i], zero, false);
	}
	for (size_t i = from; i < n && i < at + 8; i++)
		show_op(&ops[i], zero, i == at);
}

enum lin_verdict lin_check(struct lin_op *ops, size_t n)
{
	enum lin_verdict worst = LIN_GOOD;
	size_t start = 0, stuck;

	qsort(ops, n, sizeof(*ops), by_key);
	for (size_t i = 1; i <= n; i++) {
		enum lin_verdict v;

		if (i < n && ops[i].key == ops[start].key)
			continue;
		v = lin_check_key(ops + start, i - start, STEP_LIMIT, &stuck);
		if (v != LIN_GOOD && worst == LIN_GOOD) {
			tap_diag("key %u, %zu operations: %s", ops[start].key, i - start,
				 v == LIN_BAD ? "not linearizable" : "gave up");
			if (stuck != SIZE_MAX)
				show(ops + start, i - start, stuck);
			worst = v;
		}
		start = i;
	}
	return worst;
}
