/* SPDX-License-Identifier: MIT */
/*
 * Get Log Page (02h), and the error log it reads.
 */
#include <stdatomic.h>
#include <string.h>

#include "admin/admin_priv.h"

#define RAE 0x8000u	/* CDW10: leave the event of this page masked */

_Static_assert(sizeof(struct gkv_error_log_entry) == 8 * sizeof(uint64_t), "whole words");

/* ---- Error log ---- */

void kvb_admin_log_error(struct kvb_ctrl *ctrl, uint16_t sqid, uint16_t cid, uint16_t status,
			 uint32_t nsid, uint8_t opcode, uint16_t param)
{
	struct gkv_error_log_entry e = {
		.sqid = htole16(sqid),
		.cid = htole16(cid),
		.status = htole16((uint16_t)(status << 1)),
		.param_location = htole16(param),
		.nsid = htole32(nsid),
		.csi = sqid ? GKV_CSI_KV : 0,
		.opcode = opcode,
		.log_version = 1,	/* csi and opcode are valid */
	};
	struct kvb_error_slot *slot;
	uint64_t w[8], n, seq;

	if (GKV_STATUS_CODE(status) == GKV_SC_KEY_NOT_FOUND ||
	    GKV_STATUS_CODE(status) == GKV_SC_KEY_EXISTS)
		return;
	if (GKV_STATUS_CODE(status) == GKV_SC_UNRECOVERED)
		atomic_fetch_add_explicit(&ctrl->media_errors, 1, memory_order_relaxed);
	n = atomic_fetch_add_explicit(&ctrl->errors, 1, memory_order_relaxed);
	e.error_count = htole64(n + 1);
	memcpy(w, &e, sizeof(w));
	slot = &ctrl->ring[n % (KVB_ELPE + 1)];
	/* A writer that was overtaken by a whole turn of the ring leaves the newer entry. */
	seq = atomic_load_explicit(&slot->seq, memory_order_relaxed);
	if ((seq & 1) ||
	    !atomic_compare_exchange_strong_explicit(&slot->seq, &seq, seq + 1,
						     memory_order_acquire, memory_order_relaxed))
		return;
	for (int i = 0; i < 8; i++)
		atomic_store_explicit(&slot->w[i], w[i], memory_order_release);
	atomic_store_explicit(&slot->seq, seq + 2, memory_order_release);
}

/* False when the slot is empty or being written. */
static bool read_slot(struct kvb_error_slot *slot, struct gkv_error_log_entry *e)
{
	uint64_t seq = atomic_load_explicit(&slot->seq, memory_order_acquire);
	uint64_t w[8];

	if (!seq || (seq & 1))
		return false;
	/* Acquire loads, so that the second look at seq cannot come before them. */
	for (int i = 0; i < 8; i++)
		w[i] = atomic_load_explicit(&slot->w[i], memory_order_acquire);
	if (atomic_load_explicit(&slot->seq, memory_order_relaxed) != seq)
		return false;
	memcpy(e, w, sizeof(*e));
	return true;
}

/* Tenants do not learn of each other's errors. */
static bool may_see(struct kvb_adm *a, uint32_t nsid)
{
	const struct kvb_ctrl *ctrl = a->ctrl;

	if (a->peer->privileged)
		return true;
	for (unsigned int i = 0; i < ctrl->nns; i++)
		if (ctrl->ns[i]->nsid == nsid)
			return kvb_adm_access(a, ctrl->ns[i]);
	return false;
}

/* Newest first; entries not used are zero, at the end. */
static void fill_errors(struct kvb_adm *a, void *buf)
{
	struct gkv_error_log_entry *out = buf;
	uint64_t last = atomic_load_explicit(&a->ctrl->errors, memory_order_relaxed);
	unsigned int n = 0;

	for (uint64_t i = 0; i <= KVB_ELPE && i < last; i++) {
		struct gkv_error_log_entry e;

		if (read_slot(&a->ctrl->ring[(last - 1 - i) % (KVB_ELPE + 1)], &e) &&
		    may_see(a, le32toh(e.nsid)))
			out[n++] = e;
	}
}

/* ---- The other pages ---- */

static void fill_supported(struct kvb_adm *a, void *buf);

static void put_u128(uint8_t *field, uint64_t v)
{
	__le64 le = htole64(v);

	memcpy(field, &le, sizeof(le));
}

static uint64_t div_up(uint64_t v, uint64_t by)
{
	return v / by + !!(v % by);
}

static void fill_smart(struct kvb_adm *a, void *buf)
{
	struct kvb_admin_counters c = { 0 };
	struct gkv_smart_log *s = buf;

	if (a->ctrl->counters)
		a->ctrl->counters(a->ctrl->ctx, &c);
	s->critical_warning = (uint8_t)(c.degraded << 2 | c.read_only << 3);
	s->avail_spare = 100;	/* no spare area, so none of it is used up */
	put_u128(s->data_units_read, div_up(c.read_bytes, 512000));
	put_u128(s->data_units_written, div_up(c.written_bytes, 512000));
	put_u128(s->host_reads, c.reads);
	put_u128(s->host_writes, c.writes);
	put_u128(s->busy_time, c.busy_ns / UINT64_C(60000000000));
	put_u128(s->power_cycles, c.power_cycles);
	put_u128(s->power_on_hours, c.power_on_seconds / 3600);
	put_u128(s->unsafe_shutdowns, c.unsafe_shutdowns);
	put_u128(s->media_errors, c.media_errors);
	put_u128(s->num_err_log_entries,
		 atomic_load_explicit(&a->ctrl->errors, memory_order_relaxed));
}

static void fill_fw(struct kvb_adm *a, void *buf)
{
	struct gkv_fw_slot_log *fw = buf;

	(void)a;
	fw->afi = 1;
	kvb_adm_ascii(fw->frs[0], sizeof(fw->frs[0]), GKV_BUILD_VERSION);
}

static void fill_effects(struct kvb_adm *a, void *buf)
{
	static const uint8_t admin[] = { GKV_ADM_GET_LOG_PAGE, GKV_ADM_IDENTIFY, GKV_ADM_ABORT,
					 GKV_ADM_SET_FEATURES, GKV_ADM_GET_FEATURES,
					 GKV_ADM_ASYNC_EVENT };
	static const uint8_t io[] = { GKV_OP_FLUSH, GKV_OP_STORE, GKV_OP_RETRIEVE, GKV_OP_LIST,
				      GKV_OP_DELETE, GKV_OP_EXIST };
	struct gkv_effects_log *log = buf;

	for (size_t i = 0; i < sizeof(admin); i++)
		log->acs[admin[i]] = htole32(GKV_EFFECT_CSUPP);
	if (a->cdw[14] >> 24 != GKV_CSI_KV)
		return;
	for (size_t i = 0; i < sizeof(io); i++)
		log->iocs[io[i]] = htole32(GKV_EFFECT_CSUPP);
	log->iocs[GKV_OP_STORE] |= htole32(GKV_EFFECT_LBCC);
	log->iocs[GKV_OP_DELETE] |= htole32(GKV_EFFECT_LBCC);
}

static const struct page {
	uint8_t lid;
	uint32_t size;		/* bytes */
	int event;		/* type that reading the page acknowledges, or -1 */
	void (*fill)(struct kvb_adm *a, void *buf);
} pages[] = {
	{ GKV_LOG_SUPPORTED, 1024, -1, fill_supported },
	{ GKV_LOG_ERROR, (KVB_ELPE + 1) * sizeof(struct gkv_error_log_entry), KVB_EVENT_ERROR,
	  fill_errors },
	{ GKV_LOG_SMART, sizeof(struct gkv_smart_log), KVB_EVENT_SMART, fill_smart },
	{ GKV_LOG_FW_SLOT, sizeof(struct gkv_fw_slot_log), -1, fill_fw },
	{ GKV_LOG_EFFECTS, sizeof(struct gkv_effects_log), -1, fill_effects },
};
#define NPAGES (sizeof(pages) / sizeof(pages[0]))

static void fill_supported(struct kvb_adm *a, void *buf)
{
	__le32 *ids = buf;

	(void)a;
	for (size_t i = 0; i < NPAGES; i++)
		ids[pages[i].lid] = htole32(1);
}

/* ---- Get Log Page ---- */

uint16_t kvb_adm_get_log(struct kvb_adm *a)
{
	uint8_t lid = (uint8_t)a->cdw[10];
	uint64_t numd = (a->cdw[10] >> 16 | (uint64_t)(a->cdw[11] & 0xffff) << 16) + 1;
	uint64_t off = a->cdw[12] | (uint64_t)a->cdw[13] << 32;
	uint8_t csi = (uint8_t)(a->cdw[14] >> 24);
	uint8_t buf[4096] = { 0 };
	const struct page *page;
	uint16_t st;
	size_t i = 0;

	while (i < NPAGES && pages[i].lid != lid)
		i++;
	if (i == NPAGES)
		return kvb_adm_fail(a, GKV_SC_INVALID_LOG_PAGE, 40);
	page = &pages[i];
	/* Log specific parameter and identifier: no page here has one. */
	st = kvb_adm_reserved(a, 10, 0x7f00);
	if (!st)
		st = kvb_adm_reserved(a, 11, 0xffff0000);
	/* Offsets count bytes, not entries; there are no UUID lists. */
	if (!st)
		st = kvb_adm_reserved(a, 14, 0x00ffffff);
	if (!st)
		st = kvb_adm_reserved(a, 15, UINT32_MAX);
	if (st)
		return st;
	/* Every page is the controller's. */
	if (a->nsid && a->nsid != GKV_NSID_ALL)
		return kvb_adm_fail(a, GKV_SC_INVALID_FIELD, 4);
	if (lid == GKV_LOG_EFFECTS && csi != GKV_CSI_KV && csi != GKV_CSI_NVM)
		return kvb_adm_fail(a, GKV_SC_INVALID_IOCS, 59);
	if ((off & 3) || off > page->size)
		return kvb_adm_fail(a, GKV_SC_INVALID_FIELD, 48);
	if (numd * 4 > a->cap)
		return kvb_adm_fail(a, GKV_SC_INVALID_FIELD, 42);

	page->fill(a, buf);
	a->len = (uint32_t)numd * 4;
	/* Past the page's end there are zeros. */
	memcpy(a->out, buf + off, page->size - off < a->len ? page->size - off : a->len);
	if (page->event >= 0 && !(a->cdw[10] & RAE))
		a->peer->events[page->event].masked = false;
	return 0;
}
