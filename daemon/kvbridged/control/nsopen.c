/* SPDX-License-Identifier: MIT */
/*
 * A session opens a namespace: which one, whether it may, and whether the namespace's disks can
 * fill the session's regions.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "config/namespace.h"
#include "control/server.h"
#include "control/session.h"

static struct kvb_ns *choose(struct kvb_session *s, const struct gkv_msg_ns_open *m)
{
	if (m->name[0])
		return kvb_server_ns_named(s->srv, m->name);
	if (m->nsid)
		return kvb_server_ns(s->srv, m->nsid);
	for (uint32_t nsid = 1; nsid <= s->srv->nn; nsid++) {
		struct kvb_ns *ns = kvb_server_ns(s->srv, nsid);

		if (ns && kvb_ns_access(ns, s->peer.uid, s->peer.gid, s->groups, s->ngroups))
			return ns;
	}
	return NULL;
}

static void reply(struct kvb_session *s, const struct kvb_ns_open *o)
{
	struct gkv_msg_ns_open_reply reply = { 0 };
	const struct kvb_ns *ns = o->ns;
	struct kvb_store_info info;

	kvb_ns_info(ns, &info);
	reply.nsid = ns->nsid;
	reply.flags = (o->read_only ? GKV_NS_F_RDONLY : 0) | (ns->verify ? GKV_NS_F_VERIFY : 0) |
		      (ns->sync ? GKV_NS_F_SYNC : 0) | (info.volatile_cache ? GKV_NS_F_VWC : 0);
	reply.key_max = info.key_max;
	reply.value_max = ns->value_max;
	reply.block_size = info.block_size;
	reply.deadline_ns = ns->deadline_ns;
	snprintf(reply.name, sizeof(reply.name), "%s", ns->name);
	kvb_session_reply(s, &reply, sizeof(reply), NULL, 0);
}

/* The disks of the namespace can fill all regions, or not. */
static void reached(struct kvb_session *s, int rc, const struct kvb_err *err)
{
	struct kvb_ns *ns = s->asking.ns;
	struct kvb_ns_open *o = &s->open_mem[ns->nsid - 1];
	struct kvb_store_info info;

	if (rc) {
		kvb_session_error(s, -rc, err->text);
		return;
	}
	kvb_ns_info(ns, &info);
	/* Once published it is constant: reactors read it. */
	o->ns = ns;
	o->value_max = ns->value_max;
	o->key_max = (uint8_t)info.key_max;
	o->read_only = s->opening_rdonly;
	atomic_store_explicit(&s->open[ns->nsid - 1], o, memory_order_release);
	reply(s, o);
}

void kvb_session_ns_open(struct kvb_session *s, const struct gkv_msg_ns_open *m)
{
	const struct kvb_ns_open *o;
	struct kvb_ns *ns;
	char text[GKV_CTL_TEXT];
	bool read_only;
	int access;

	if (!memchr(m->name, 0, sizeof(m->name)) || m->flags & ~GKV_NS_F_RDONLY) {
		kvb_session_error(s, EINVAL, "name is not terminated, or unknown flags");
		return;
	}
	ns = choose(s, m);
	if (!ns) {
		if (m->name[0])
			snprintf(text, sizeof(text), "no namespace %s", m->name);
		else if (m->nsid)
			snprintf(text, sizeof(text), "no namespace with NSID %u", m->nsid);
		else
			snprintf(text, sizeof(text), "no namespace that uid %u may open",
				 s->peer.uid);
		kvb_session_error(s, ENOENT, text);
		return;
	}
	access = kvb_ns_access(ns, s->peer.uid, s->peer.gid, s->groups, s->ngroups);
	if (!access) {
		snprintf(text, sizeof(text), "uid %u may not open namespace %s", s->peer.uid,
			 ns->name);
		kvb_session_error(s, EACCES, text);
		return;
	}
	read_only = ns->read_only || access < 2 || m->flags & GKV_NS_F_RDONLY;
	o = atomic_load(&s->open[ns->nsid - 1]);
	if (!o) {
		s->opening_rdonly = read_only;
		kvb_reach_ns(s, ns, reached);
	} else if (o->read_only == read_only) {
		/* A second open grants nothing new. */
		reply(s, o);
	} else {
		snprintf(text, sizeof(text), "namespace %s is open already, %s", ns->name,
			 o->read_only ? "read-only" : "for writing");
		kvb_session_error(s, EBUSY, text);
	}
}
