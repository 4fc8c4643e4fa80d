/* SPDX-License-Identifier: MIT */
/* Kernels whose machine code scripts/check-device.sh looks at; nothing runs them. */
#define GLOBAL extern "C" __attribute__((global))

#include <gkv_device.h>

GLOBAL void pack(struct gkv_dev_queue *q, const struct gkv_dev_cmd *c, uint32_t slot,
		 gkv_dev_token *t)
{
	*t = gkvd_pack(q, c, slot);
}

GLOBAL void publish(struct gkv_dev_queue *q, uint32_t slot, uint32_t n)
{
	gkvd_mark(q, slot, n);
}

GLOBAL void submit(struct gkv_dev_queue *q, const struct gkv_dev_cmd *c, gkv_dev_token *t)
{
	*t = gkv_dev_submit(q, c);
}

GLOBAL void reap(struct gkv_dev_queue *q, uint64_t mask)
{
	gkvd_reap(q, mask);
}

GLOBAL void wait(struct gkv_dev_queue *q, gkv_dev_token t, struct gkv_dev_result *r)
{
	gkv_dev_wait(q, t, 0, r);
}

GLOBAL void exec(struct gkv_dev_queue *q, const struct gkv_dev_cmd *c, struct gkv_dev_result *r)
{
	gkv_dev_exec(q, c, 0, r);
}

GLOBAL void answer(struct gkv_dev_answers a, uint32_t i, struct gkv_dev_result *r)
{
	gkv_dev_answer(&a, i, r);
}

GLOBAL void copy(struct gkv_dev_queue *q, void *to, const void *from, uint64_t len)
{
	gkv_dev_copy(q, gkvd_active(), to, from, len);
}

GLOBAL void crc32c(struct gkv_dev_queue *q, const void *data, uint32_t len, uint32_t *crc)
{
	*crc = gkv_dev_crc32c(q, gkvd_active(), data, len);
}

GLOBAL void batch(struct gkv_dev_queue *q, const struct gkv_dev_cmd *c, uint32_t n,
		  gkv_dev_token *t, struct gkv_dev_result *r)
{
	uint64_t mask = gkvd_active();

	gkv_dev_submit_batch(q, mask, c, n, t);
	gkv_dev_wait_batch(q, mask, t, n, 0, r);
}
