/* SPDX-License-Identifier: MIT */
#include "control/hits.h"

#include <inttypes.h>
#include <stdio.h>

#include "control/server.h"
#include "core/lookups.h"
#include "core/reactor_priv.h"

#define TICK_NS 2000000000u

/* By namespace index: what the last look saw. */
static struct {
	uint64_t hits;
	uint64_t misses;	/* when there was a hit, or nothing to be found */
	bool warned;
} last[KVB_MAX_NAMESPACES];

/* Not all stores can count their keys. */
static bool holds_something(const struct kvb_ns *ns, uint64_t stores)
{
	struct kvb_store_info info;

	kvb_ns_info(ns, &info);
	return info.uncounted ? stores : info.keys;
}

void kvb_hits_of(const struct kvb_ns *ns, struct kvb_hits *h)
{
	uint64_t stores = 0;

	*h = (struct kvb_hits){ 0 };
	for (unsigned int i = 0; i < kvb_nreactors; i++) {
		const struct kvb_lookups *l = &kvb_lookups[i][ns->index];

		h->hits += kvb_counted(&l->hits);
		h->misses += kvb_counted(&l->misses);
		stores += kvb_counted(&l->stores);
	}
	if (h->hits != last[ns->index].hits || !holds_something(ns, stores)) {
		last[ns->index].hits = h->hits;
		last[ns->index].misses = h->misses;
		last[ns->index].warned = false;
	}
	h->missed = h->misses - last[ns->index].misses;
	h->cold = h->missed >= KVB_HITS_COLD;
}

const char *kvb_hits_warning(const struct kvb_ns *ns, const struct kvb_hits *h, char *buf,
			     unsigned int len)
{
	snprintf(buf, len,
		 "namespace %s is not empty, but the last %" PRIu64 " look-ups found nothing: do those who store and those who look up make their keys alike?",
		 ns->name, h->missed);
	return buf;
}

void kvb_hits_tick(struct kvb_server *srv, uint64_t now_ns)
{
	static uint64_t looked;

	if (now_ns - looked < TICK_NS)
		return;
	looked = now_ns;
	for (unsigned int i = 0; i < srv->nns; i++) {
		const struct kvb_ns *ns = srv->nss[i];
		struct kvb_hits h;
		char text[256];

		kvb_hits_of(ns, &h);
		if (!h.cold || last[ns->index].warned)
			continue;
		last[ns->index].warned = true;
		kvb_log(KVB_LOG_WARN, "%s", kvb_hits_warning(ns, &h, text, sizeof(text)));
	}
}
