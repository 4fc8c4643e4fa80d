/* SPDX-License-Identifier: MIT */
/*
 * A namespace's own keys, checked and typed. Control thread.
 */
#ifndef KVB_NSCONF_H
#define KVB_NSCONF_H

#include <sys/types.h>

#include "config/config.h"

#define KVB_NSID_MAX 1024u	/* sessions index by it */

struct kvb_nsconf {
	char name[KVB_NAME_MAX + 1];
	uint32_t nsid;
	char layers[KVB_MAX_LAYERS][24]; /* names, top first */
	unsigned int nlayers;
	uint64_t deadline_ns;
	uint32_t value_max;	/* bytes */
	bool sync;
	bool verify;
	bool read_only;
	bool allow_bounce;
	bool has_uuid;
	uint8_t uuid[16];
	char access[512];	/* canonical: names resolved to numbers */
};

/*
 * Read section @c. Also refuses keys that are neither the namespace's nor those of a
 * layer in its stack; a layer's own unknown keys show when it has been opened.
 */
int kvb_nsconf_parse(const struct kvb_conf *c, struct kvb_nsconf *out, struct kvb_err *err);

/* "kv0" of a section "namespace kv0"; NULL when it is no namespace's or the name is bad. */
const char *kvb_nsconf_name(const char *section);

/* A key that a namespace's section may have: its own, or one of any layer. */
bool kvb_nsconf_known(const char *key);

/*
 * What canonical rules @access allow somebody with these credentials: 0 nothing, 1 reading,
 * 2 writing. The first rule that fits decides.
 */
int kvb_access_check(const char *access, uid_t uid, gid_t gid, const gid_t *groups, int ngroups);

#endif
