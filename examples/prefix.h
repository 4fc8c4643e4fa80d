/* SPDX-License-Identifier: MIT */
/*
 * Fetch the KV cache of a prompt's prefix as paged attention has it: one value for each block
 * of tokens, into the page of that block, wherever it is. The same for CUDA, HIP and C.
 */
#ifndef PREFIX_H
#define PREFIX_H

#include <gkv_device.h>

struct prefix {
	uint32_t nsid;
	uint32_t n_blocks;
	uint32_t page_len;		/* bytes of a page, and of a value */
	uint32_t rsvd;
	const uint64_t *keys;		/* two words for each block */
	const uint32_t *table;		/* page of each block */
	uint64_t pages;			/* IOVA of page 0 */
	uint64_t timeout_ns;		/* for each doorbell; 0: the queue's */
	/* Memory of the device, for n_blocks each. */
	struct gkv_dev_cmd *cmds;
	gkv_dev_token *tokens;
	struct gkv_dev_result *results;
};

/*
 * Called by all lanes of @mask together. Returns how many blocks are there before the first
 * that is not, for whatever reason: it and those behind are computed. Pages of results that
 * ended neither with GKV_DEV_DONE nor _FULL or _INVALID may still be written to.
 */
GKV_DEV_FN uint32_t prefix_fetch(struct gkv_dev_queue *q, uint64_t mask, const struct prefix *p)
{
	uint32_t rank = gkvd_rank(mask), lanes = gkvd_popc64(mask), from = 0, n, i;

	while (from < p->n_blocks) {
		for (i = from + rank; i < p->n_blocks; i += lanes)
			p->cmds[i] = gkv_dev_retrieve(p->nsid, p->keys[2 * i], p->keys[2 * i + 1],
						      16, p->pages + (uint64_t)p->table[i] *
						      p->page_len, p->page_len);
		gkvd_sync(mask);
		/* As many as the queue has room for, with one doorbell. */
		n = gkv_dev_submit_batch(q, mask, p->cmds + from, p->n_blocks - from,
					 p->tokens + from);
		gkv_dev_wait_batch(q, mask, p->tokens + from, n, p->timeout_ns, p->results + from);
		for (i = from; i < from + n; i++)
			if (p->results[i].end != GKV_DEV_DONE || p->results[i].status ||
			    p->results[i].len != p->page_len)
				return i;
		/* Others have all the room: it is quicker to compute the rest. */
		if (!n)
			return from;
		from += n;
		gkvd_sync(mask);
	}
	return from;
}

#endif
