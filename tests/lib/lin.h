/* SPDX-License-Identifier: MIT */
/*
 * Linearizability of one key: is there an order of the operations, each at one moment
 * between its call and its return, in which every result is right?
 *
 * Wing and Gong's search with Lowe's memory of the positions that were tried. Keys are
 * independent of each other, so a history is checked key by key.
 */
#ifndef TESTS_LIN_H
#define TESTS_LIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIN_ABSENT_VALUE 0u	/* the value of a key that does not exist */
#define LIN_NEVER UINT64_MAX	/* @ret of an operation whose outcome is unknown */

enum lin_kind {
	LIN_STORE,		/* whether it exists or not */
	LIN_CREATE,		/* Store that must not replace */
	LIN_REPLACE,		/* Store that must replace */
	LIN_RETRIEVE,
	LIN_DELETE,		/* succeeds on a missing key too */
	LIN_DELETE_EXISTING,	/* reports a missing key */
	LIN_EXIST,
	LIN_NKINDS,
};

enum lin_outcome {
	LIN_OK,
	LIN_NO_KEY,		/* there is no such key */
	LIN_KEY_EXISTS,		/* Store refused to replace */
	/*
	 * A mutation may have happened, may happen at any later time, or never. A read of
	 * unknown outcome says nothing and is left out.
	 */
	LIN_UNKNOWN,
};

struct lin_op {
	uint64_t call, ret;	/* ns on one clock; @ret LIN_NEVER with LIN_UNKNOWN */
	uint64_t value;		/* stored or retrieved, never LIN_ABSENT_VALUE */
	uint32_t key;
	uint8_t kind;		/* enum lin_kind */
	uint8_t outcome;	/* enum lin_outcome */
};

enum lin_verdict { LIN_GOOD, LIN_BAD, LIN_GAVE_UP };

/*
 * Check the history of one key that starts out absent. @ops is sorted by call on return.
 * @stuck, when not NULL, gets the index of the operation no order could get past. Gives up
 * after @limit steps.
 */
enum lin_verdict lin_check_key(struct lin_op *ops, size_t n, uint64_t limit, size_t *stuck);

/*
 * Check a history of any keys; @ops is sorted by key on return. Prints what is around the
 * first operation that does not fit as TAP diagnostics.
 */
enum lin_verdict lin_check(struct lin_op *ops, size_t n);

const char *lin_kind_name(uint8_t kind);

#endif
