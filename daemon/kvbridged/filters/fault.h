/* SPDX-License-Identifier: MIT */
/*
 * Rules of the filter "fault": what goes wrong, with which operations, how often.
 */
#ifndef KVB_FAULT_H
#define KVB_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/op.h"

#define KVB_FAULT_MAX_RULES 32

struct kvb_fault_rule {
	/* Which operations. */
	uint32_t ops;		/* bit 1 << opcode */
	uint8_t prefix_len;	/* bytes */
	uint8_t prefix[GKV_KEY_MAX];

	/* How often. */
	bool chance;		/* with probability @p / 2^64, else always */
	uint64_t p;
	uint64_t every;		/* of these, each n-th; 1: all */
	uint64_t after;		/* not the first ones */
	uint64_t times;		/* at most; 0: no limit */
	_Atomic uint64_t seen;
	_Atomic uint64_t fired;

	/* What. */
	uint64_t slow_ns;	/* wait, then go on */
	uint64_t slow_after_ns;	/* the answer waits */
	int err;		/* an errno that becomes the status */
	uint16_t status;	/* or the status itself */
	bool lost;		/* never reaches the layer below, never completes */
	bool lost_after;	/* happens, but never completes */
	bool flip;		/* one bit of the value is wrong */
};

struct kvb_fault {
	uint64_t seed;
	unsigned int nrules;
	struct kvb_fault_rule rules[KVB_FAULT_MAX_RULES];
};

/* Append the rules in @text. Returns 0 or a negative errno with text that names the rule. */
int kvb_fault_parse(struct kvb_fault *f, const char *text, struct kvb_err *err);

/* The first rule that strikes @op, or NULL. Counts. Any thread. */
const struct kvb_fault_rule *kvb_fault_strike(struct kvb_fault *f, const struct kvb_op *op);

#endif
