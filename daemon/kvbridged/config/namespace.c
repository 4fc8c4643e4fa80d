/* SPDX-License-Identifier: MIT */
#include "config/namespace.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uuid/uuid.h>

#include "config/nsconf.h"
#include "config/state.h"

/* What comes with a namespace but is no business of the data path. */
struct ns_box {
	struct kvb_ns ns;
	char *state_path;
	struct kvb_conf views[KVB_MAX_LAYERS];	/* what each layer sees of the section */
};

#define KVB_STORE(name) extern const struct kvb_store_ops kvb_##name##_ops;
#include "stores/table.def"
#undef KVB_STORE

static const struct kvb_store_ops *const stores[] = {
#define KVB_STORE(name) &kvb_##name##_ops,
#include "stores/table.def"
#undef KVB_STORE
};

const struct kvb_store_ops *kvb_store_find(const char *name)
{
	for (size_t i = 0; i < sizeof(stores) / sizeof(stores[0]); i++)
		if (!strcmp(stores[i]->name, name))
			return stores[i];
	return NULL;
}

static struct ns_box *box_of(const struct kvb_ns *ns)
{
	return (struct ns_box *)((char *)ns - offsetof(struct ns_box, ns));
}

void kvb_ns_info(const struct kvb_ns *ns, struct kvb_store_info *info)
{
	memset(info, 0, sizeof(*info));
	info->key_max = GKV_KEY_MAX;
	info->value_max = UINT32_MAX;
	info->block_size = 1;
	info->ready = true;
	if (ns->bottom->ops->info)
		ns->bottom->ops->info(ns->bottom, info);
	if (info->value_max > ns->value_max)
		info->value_max = ns->value_max;
	info->read_only |= ns->read_only;
}

int kvb_ns_access(const struct kvb_ns *ns, uid_t uid, gid_t gid, const gid_t *groups, int n)
{
	int may = kvb_access_check(ns->access, uid, gid, groups, n);

	return may == 2 && ns->read_only ? 1 : may;
}

/*
 * A store with a path is the same namespace whichever daemon of this host serves it, one with
 * a pool whichever host does; one with neither ends with its daemon.
 */
static void derive_uuid(struct kvb_ns *ns, const struct kvb_conf *bottom,
			const struct kvb_config *cfg)
{
	const struct kvb_conf_key *path = kvb_conf_find(bottom, "path");
	const struct kvb_conf_key *pool = kvb_conf_find(bottom, "pool");
	const struct kvb_conf_key *part = kvb_conf_find(bottom, "namespace");
	static const uint8_t nil[16];
	char text[1024];

	if (pool) {
		snprintf(text, sizeof(text), "rados\n%s\n%s", pool->value, part ? part->value : "");
		uuid_generate_sha1(ns->uuid, nil, text, strlen(text));
		return;
	}
	snprintf(text, sizeof(text), "%s\n%s", ns->name, path ? path->value : "");
	uuid_generate_sha1(ns->uuid, path ? cfg->host_uuid : cfg->uuid, text, strlen(text));
}

static int build_stack(struct ns_box *box, const struct kvb_conf *conf,
		       const struct kvb_nsconf *nc, struct kvb_err *err)
{
	struct kvb_ns *ns = &box->ns;
	size_t off = 0;

	ns->nlayers = nc->nlayers;
	for (unsigned int i = 0; i < nc->nlayers; i++) {
		struct kvb_store *st = &ns->layers[i];
		bool last = i + 1 == nc->nlayers;

		st->ops = kvb_store_find(nc->layers[i]);
		if (!st->ops)
			return kvb_conf_fail(conf, "stack", err, EINVAL,
					     "no store or filter \"%s\"", nc->layers[i]);
		if (last && (st->ops->flags & KVB_STORE_FILTER))
			return kvb_conf_fail(conf, "stack", err, EINVAL,
					     "filter \"%s\" needs a store below it", st->ops->name);
		if (!last && !(st->ops->flags & KVB_STORE_FILTER))
			return kvb_conf_fail(conf, "stack", err, EINVAL,
					     "store \"%s\" must come last", st->ops->name);
		st->ns = ns;
		st->layer = i;
		st->next = last ? NULL : st + 1;
		st->op_offset = off;
		off += (st->ops->op_size + 15) & ~(size_t)15;
		box->views[i] = kvb_conf_layer(conf, st->ops->name);
	}
	ns->op_size = off;
	ns->top = &ns->layers[0];
	ns->bottom = &ns->layers[ns->nlayers - 1];
	ns->sharded = ns->bottom->ops->flags & KVB_STORE_SHARDED;
	ns->volatile_store = ns->bottom->ops->flags & KVB_STORE_VOLATILE;
	ns->remote = ns->bottom->ops->flags & KVB_STORE_REMOTE;
	return 0;
}

static void close_layers(struct kvb_ns *ns, unsigned int first)
{
	for (unsigned int i = first; i < ns->nlayers; i++)
		if (ns->layers[i].ops->close)
			ns->layers[i].ops->close(&ns->layers[i]);
}

static int open_layers(struct ns_box *box, struct kvb_err *err)
{
	struct kvb_ns *ns = &box->ns;
	int ret = 0;

	for (unsigned int i = ns->nlayers; i-- > 0;) {
		struct kvb_store *st = &ns->layers[i];

		if (st->ops->open)
			ret = st->ops->open(st, &box->views[i], err);
		if (ret) {
			close_layers(ns, i + 1);
			return ret;
		}
		/* What an open layer has not asked for, no layer knows. */
		ret = kvb_conf_all_used(&box->views[i], err);
		if (ret) {
			close_layers(ns, i);
			return ret;
		}
	}
	return 0;
}

static int open_box(struct ns_box *box, const struct kvb_conf *conf, const struct kvb_config *cfg,
		    struct kvb_err *err)
{
	struct kvb_ns *ns = &box->ns;
	struct kvb_store_info info;
	struct kvb_nsconf nc;
	bool ednek = false;
	int ret;

	ret = kvb_nsconf_parse(conf, &nc, err);
	if (ret)
		return ret;
	ns->nsid = nc.nsid;
	strcpy(ns->name, nc.name);
	ns->deadline_ns = nc.deadline_ns;
	ns->value_max = nc.value_max;
	ns->verify = nc.verify;
	ns->sync = nc.sync;
	ns->read_only = nc.read_only;
	ns->allow_bounce = nc.allow_bounce;
	ns->access = strdup(nc.access);
	ns->state_dir = cfg->state_dir;
	if (!ns->access ||
	    asprintf(&box->state_path, "%s/%s.state", cfg->state_dir, ns->name) < 0)
		return kvb_fail(err, ENOMEM, "out of memory for namespace %s", ns->name);
	ret = build_stack(box, conf, &nc, err);
	if (ret)
		return ret;
	if (nc.has_uuid)
		memcpy(ns->uuid, nc.uuid, sizeof(ns->uuid));
	else
		derive_uuid(ns, &box->views[ns->nlayers - 1], cfg);
	ret = kvb_state_read(box->state_path, &ednek, err);
	if (ret)
		return ret;
	ns->ednek = ednek;
	ret = open_layers(box, err);
	if (ret)
		return ret;
	kvb_ns_info(ns, &info);
	ns->value_max = info.value_max;
	ns->vwc = info.volatile_cache && !ns->sync;
	return 0;
}

struct kvb_ns *kvb_ns_open(const struct kvb_conf *conf, const struct kvb_config *cfg, int *ret,
			   struct kvb_err *err)
{
	struct ns_box *box = calloc(1, sizeof(*box));

	if (!box) {
		*ret = kvb_fail(err, ENOMEM, "out of memory for a namespace");
		return NULL;
	}
	*ret = open_box(box, conf, cfg, err);
	if (!*ret)
		return &box->ns;
	free(box->ns.access);
	free(box->state_path);
	free(box);
	return NULL;
}

void kvb_ns_close(struct kvb_ns *ns)
{
	struct ns_box *box = box_of(ns);

	close_layers(ns, 0);
	free(ns->access);
	free(box->state_path);
	free(box);
}

int kvb_ns_set_ednek(struct kvb_ns *ns, bool on, struct kvb_err *err)
{
	int ret = kvb_state_write(box_of(ns)->state_path, on, err);

	if (!ret)
		atomic_store_explicit(&ns->ednek, on, memory_order_relaxed);
	return ret;
}
