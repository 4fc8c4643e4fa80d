/* SPDX-License-Identifier: MIT */
/*
 * The configuration: a file of one [daemon] section and one [namespace NAME] section a
 * namespace, and options of the command line, which override the daemon's keys.
 *
 * All functions: control thread, or any one thread before it runs.
 */
#ifndef KVB_CONFIG_H
#define KVB_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "core/conf.h"
#include "core/err.h"
#include "core/store.h"

#define KVB_MAX_NAMESPACES 64
#define KVB_NAME_MAX 32		/* of a namespace, bytes */
#define KVB_VALUE_MAX 0x7fffffffu /* bytes: bit 31 of a Retrieve's DW0 may carry a flag */

/* Where a value comes from, in rising order of precedence. */
enum kvb_origin {
	KVB_ORIGIN_DEFAULT, KVB_ORIGIN_FILE,
	KVB_ORIGIN_LIVE, KVB_ORIGIN_SYSFS,	/* these are equals: the later wins */
	KVB_ORIGIN_CMDLINE,
};

struct kvb_conf_key {
	char *name;
	char *value;
	unsigned int line;	/* in the file, 0 for the command line */
	enum kvb_origin origin;
	bool used;		/* somebody asked for it */
};

/* One section, or a layer's view of it: the keys that start with @prefix. */
struct kvb_conf {
	const char *file;	/* for messages; NULL without one */
	char section[64];	/* as written between the brackets */
	char prefix[24];	/* "local.", or empty */
	unsigned int line;
	struct kvb_conf_key *keys;
	size_t nkeys;
	size_t cap;		/* 0 in a view: the keys are another's */
};

struct kvb_config {
	char *file;		/* NULL without one */
	struct kvb_conf daemon;
	struct kvb_conf *ns;	/* one a namespace, in the file's order */
	size_t nns;

	/* The daemon's keys; valid after kvb_config_finish(). */
	const char *socket;	/* path */
	uint64_t socket_mode;	/* permission bits */
	const char *socket_group; /* name or number; NULL: leave it */
	const char *state_dir;	/* where features that must persist are kept */
	uint8_t uuid[16];	/* of the daemon as a subsystem, stable over restarts */
	uint8_t host_uuid[16];	/* of the machine, for what outlives a daemon */
	unsigned int cpus[KVB_MAX_REACTORS];
	unsigned int ncpus;	/* 0: leave the affinity as it is */
	uint64_t reactors;
	uint64_t poll_interval_ns;
	uint64_t spin_ns;
	uint64_t max_queue_depth; /* entries */
	uint64_t max_qid;
	uint64_t max_sessions;
	uint64_t max_user_sessions; /* of one uid */
	uint64_t max_regions;	/* a session */
	uint64_t max_region_bytes; /* a session */
	uint64_t buffer_memory;	/* bytes, shared out among the reactors */
	uint64_t dstrd;
	uint64_t log_level;	/* enum kvb_log_level */
};

/*
 * The whole of it: the file (@path NULL for none), then the options, each "key=value"
 * with a daemon's key, then defaults and limits. On failure @cfg needs no freeing.
 */
int kvb_config_load(struct kvb_config *cfg, const char *path, const char *const *options,
		    size_t noptions, struct kvb_err *err);

/* The steps of kvb_config_load(). On failure, kvb_config_free(). */
void kvb_config_init(struct kvb_config *cfg);
int kvb_config_option(struct kvb_config *cfg, const char *option, struct kvb_err *err);
int kvb_config_file(struct kvb_config *cfg, const char *path, struct kvb_err *err);
int kvb_config_text(struct kvb_config *cfg, const char *name, const char *text, size_t len,
		    struct kvb_err *err);
int kvb_config_finish(struct kvb_config *cfg, struct kvb_err *err);
void kvb_config_free(struct kvb_config *cfg);

/* ---- Sections ---- */

int kvb_conf_add(struct kvb_conf *c, const char *name, const char *value, unsigned int line,
		 enum kvb_origin origin, struct kvb_err *err);
void kvb_conf_clear(struct kvb_conf *c);
/* The one in force: an option of the command line comes before the file. */
const struct kvb_conf_key *kvb_conf_find(const struct kvb_conf *c, const char *name);
void kvb_conf_mark_used(const struct kvb_conf *c, const char *name);
/* A layer's view of @c. The keys stay @c's. */
struct kvb_conf kvb_conf_layer(const struct kvb_conf *c, const char *layer);
/* Fails, naming it, when a key of the view or section was never asked for. */
int kvb_conf_all_used(const struct kvb_conf *c, struct kvb_err *err);
/* kvb_fail() with file, line, section, key and value in front. */
int kvb_conf_fail(const struct kvb_conf *c, const char *key, struct kvb_err *err, int errnum,
		  const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* ---- The daemon's keys as a table ---- */

enum kvb_key_kind {
	KVB_KEY_TEXT,
	KVB_KEY_COUNT,
	KVB_KEY_OCTAL,
	KVB_KEY_SIZE,
	KVB_KEY_TIME,
	KVB_KEY_LEVEL,
	KVB_KEY_CPUS,
	KVB_KEY_UUID,
};

struct kvb_key {
	const char *name;
	enum kvb_key_kind kind;
	bool live;		/* may be changed while the daemon runs */
	const char *dflt;	/* NULL: none, or worked out */
	uint64_t min, max;
	size_t offset;		/* in struct kvb_config */
};

extern const struct kvb_key kvb_daemon_keys[];
extern const size_t kvb_daemon_nkeys;
extern const char *const kvb_log_level_names[4];

/* Parse and check a numeric key's text: -EINVAL or -ERANGE, and @err names the limits. */
int kvb_key_parse(const struct kvb_key *k, const char *text, uint64_t *out, struct kvb_err *err);
/* A numeric value in the key's unit, as kvb_key_parse() takes it; returns @buf. */
const char *kvb_key_text(const struct kvb_key *k, uint64_t v, char *buf, size_t len);

#endif
