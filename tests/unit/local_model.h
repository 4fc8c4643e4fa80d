/* SPDX-License-Identifier: MIT */
/*
 * What a store must hold, as a list of versions for each key: which one was acknowledged
 * last, which was durable last, which one is under way. Works on the rig of local_rig.h.
 */
#ifndef LOCAL_MODEL_H
#define LOCAL_MODEL_H

#include "local_rig.h"

#define MODEL_KEYS 40
#define MODEL_SLOTS 16

struct model_ver {
	bool absent, failed;
	uint32_t len;
};

struct model_key {
	uint8_t key[16];
	uint8_t klen;
	struct model_ver *v;
	unsigned int n, cap;
	unsigned int acked, flushed;
	unsigned int busy;	/* version under way, 0: none */
};

struct model_slot {
	struct rig_op ro;
	unsigned int k, ver;
	unsigned int lo;	/* Retrieve: what was acknowledged when it began */
	uint8_t op;
	bool used;
	unsigned char *mem, *at;
	uint32_t len;
	unsigned int snap[MODEL_KEYS];
};

struct model {
	struct model_key key[MODEL_KEYS];
	struct model_slot slot[MODEL_SLOTS];
	unsigned int nkeys;
	uint32_t max_len;
	bool faults;		/* statuses of failed I/O may appear */
	uint64_t stores, deletes, retrieves, refused, failed;
};

void model_init(struct model *m, unsigned int nkeys, uint32_t max_len);
void model_free(struct model *m);
/* Begin one random operation, if a slot is free. */
void model_submit(struct model *m);
/* Random operations and events. */
void model_work(struct model *m, unsigned int steps);
/* Until everything submitted is over. */
void model_drain(struct model *m);
/* After rig_kill() or rig_power_cut(): operations under way are in the air. */
void model_crashed(struct model *m, bool power);
/* Every key holds a version it may hold, and that is the one from now on; space adds up. */
void model_check(struct model *m);

#define MODEL_REQUIRE(x) model_require(x, #x, __FILE__, __LINE__)
void model_require(bool ok, const char *what, const char *file, int line);

#endif
