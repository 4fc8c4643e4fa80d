/* SPDX-License-Identifier: MIT */
/*
 * Get and Set Features (0Ah, 09h).
 */
#include <stdatomic.h>

#include "admin/admin_priv.h"
#include "config/namespace.h"

/* Get: SEL in CDW10 10:8. Set: SV in bit 31. */
enum { SEL_CURRENT, SEL_DEFAULT, SEL_SAVED, SEL_SUPPORTED };
#define SV 0x80000000u

#define CAP_SAVEABLE 0x1u
#define CAP_NS 0x2u
#define CAP_CHANGEABLE 0x4u

/* Temperature Threshold selectors in CDW11. */
#define TMPSEL(dw) ((dw) >> 16 & 0xf)
#define THSEL(dw) ((dw) >> 20 & 0x3)

struct feature {
	uint8_t fid;
	uint8_t caps;
	uint32_t get_mask;	/* bits of CDW11 that Get Features may use */
	uint32_t set_mask;	/* ... and Set Features */
	uint16_t (*get)(struct kvb_adm *a, bool dflt, uint32_t *out);
	uint16_t (*set)(struct kvb_adm *a);
};

static uint16_t bad_value(struct kvb_adm *a)
{
	return kvb_adm_fail(a, GKV_SC_INVALID_FIELD, 44);
}

static uint16_t get_arbitration(struct kvb_adm *a, bool dflt, uint32_t *out)
{
	*out = dflt ? 0x7 : a->peer->arbitration;
	return 0;
}

static uint16_t set_arbitration(struct kvb_adm *a)
{
	a->peer->arbitration = a->cdw[11];
	return 0;
}

/* One power state: 0. */
static uint16_t get_zero(struct kvb_adm *a, bool dflt, uint32_t *out)
{
	(void)a;
	(void)dflt;
	*out = 0;
	return 0;
}

static uint16_t set_power(struct kvb_adm *a)
{
	return a->cdw[11] & 0x1f ? bad_value(a) : 0;
}

/* There is no sensor; the thresholds are kept because a controller must have them. */
static uint16_t get_temp(struct kvb_adm *a, bool dflt, uint32_t *out)
{
	if (TMPSEL(a->cdw[11]) || THSEL(a->cdw[11]) > 1)
		return bad_value(a);
	if (THSEL(a->cdw[11]))
		*out = dflt ? 0 : a->peer->temp_under;
	else
		*out = dflt ? 0xffff : a->peer->temp_over;
	return 0;
}

static uint16_t set_temp(struct kvb_adm *a)
{
	uint32_t sensor = TMPSEL(a->cdw[11]);

	/* Fh: all sensors, of which there is the composite one. */
	if ((sensor && sensor != 0xf) || THSEL(a->cdw[11]) > 1)
		return bad_value(a);
	if (THSEL(a->cdw[11]))
		a->peer->temp_under = a->cdw[11] & 0xffff;
	else
		a->peer->temp_over = a->cdw[11] & 0xffff;
	return 0;
}

static uint16_t get_vwc(struct kvb_adm *a, bool dflt, uint32_t *out)
{
	if (!kvb_adm_has_vwc(a->ctrl))
		return kvb_adm_fail(a, GKV_SC_INVALID_FIELD, 40);
	*out = dflt;
	for (unsigned int i = 0; i < a->ctrl->nns; i++)
		if (atomic_load_explicit(&a->ctrl->ns[i]->vwc, memory_order_relaxed))
			*out = 1;
	return 0;
}

/* The cache belongs to all namespaces: only who may write each of them may switch it. */
static uint16_t set_vwc(struct kvb_adm *a)
{
	const struct kvb_ctrl *ctrl = a->ctrl;

	if (!kvb_adm_has_vwc(ctrl))
		return kvb_adm_fail(a, GKV_SC_INVALID_FIELD, 40);
	for (unsigned int i = 0; i < ctrl->nns; i++)
		if (kvb_adm_ns_vwc(ctrl->ns[i]) && kvb_adm_access(a, ctrl->ns[i]) < 2)
			return GKV_SC_OPERATION_DENIED;
	for (unsigned int i = 0; i < ctrl->nns; i++)
		if (kvb_adm_ns_vwc(ctrl->ns[i]))
			atomic_store_explicit(&ctrl->ns[i]->vwc, a->cdw[11] & 1,
					      memory_order_relaxed);
	return 0;
}

/* What is allocated does not depend on what is asked for: every queue up to the limit. */
static uint16_t get_queues(struct kvb_adm *a, bool dflt, uint32_t *out)
{
	uint32_t n = a->ctrl->max_qid - 1;

	(void)dflt;
	*out = n << 16 | n;
	return 0;
}

static uint16_t set_queues(struct kvb_adm *a)
{
	if ((a->cdw[11] & 0xffff) == 0xffff || a->cdw[11] >> 16 == 0xffff)
		return bad_value(a);
	return get_queues(a, false, &a->dw0);
}

static uint16_t get_coalesce(struct kvb_adm *a, bool dflt, uint32_t *out)
{
	*out = dflt ? 0 : a->peer->irq_coalesce;
	return 0;
}

static uint16_t set_coalesce(struct kvb_adm *a)
{
	a->peer->irq_coalesce = a->cdw[11];
	return 0;
}

/* One vector: 0. */
static uint16_t get_irq(struct kvb_adm *a, bool dflt, uint32_t *out)
{
	if (a->cdw[11] & 0xffff)
		return bad_value(a);
	*out = dflt ? 0 : a->peer->irq_config;
	return 0;
}

static uint16_t set_irq(struct kvb_adm *a)
{
	if (a->cdw[11] & 0xffff)
		return bad_value(a);
	a->peer->irq_config = a->cdw[11];
	return 0;
}

static uint16_t get_events(struct kvb_adm *a, bool dflt, uint32_t *out)
{
	*out = dflt ? 0 : a->peer->event_config;
	return 0;
}

static uint16_t set_events(struct kvb_adm *a)
{
	a->peer->event_config = a->cdw[11];
	return 0;
}

/* One combination of command sets, index 0: KV alone. */
static uint16_t set_iocs(struct kvb_adm *a)
{
	return a->cdw[11] ? kvb_adm_fail(a, GKV_SC_IOCS_COMBINATION, 44) : 0;
}

static uint16_t get_kv(struct kvb_adm *a, bool dflt, uint32_t *out)
{
	struct kvb_ns *ns;
	uint16_t st = kvb_adm_ns(a, &ns);

	if (st)
		return st;
	*out = !dflt && atomic_load_explicit(&ns->ednek, memory_order_relaxed) ?
		       GKV_FEAT_KV_EDNEK : 0;
	return 0;
}

static uint16_t store_kv(struct kvb_ns *ns, bool on)
{
	struct kvb_err err;

	if (!kvb_ns_set_ednek(ns, on, &err))
		return 0;
	kvb_log_client("features", KVB_LOG_ERR, "namespace %s: Feature 20h was not saved: %s",
		       ns->name, err.text);
	return GKV_SC_INTERNAL;
}

/* Persists with SV and without: the command set makes it survive resets either way. */
static uint16_t set_kv(struct kvb_adm *a)
{
	bool on = a->cdw[11] & GKV_FEAT_KV_EDNEK;
	struct kvb_ns *ns;
	uint32_t nsid = 0;
	uint16_t st;

	if (a->nsid != GKV_NSID_ALL) {
		st = kvb_adm_ns(a, &ns);
		if (st)
			return st;
		return kvb_adm_access(a, ns) < 2 ? GKV_SC_OPERATION_DENIED : store_kv(ns, on);
	}
	/* Broadcast: all active namespaces or none. */
	while ((ns = kvb_adm_next_ns(a, nsid))) {
		if (kvb_adm_access(a, ns) < 2)
			return GKV_SC_OPERATION_DENIED;
		nsid = ns->nsid;
	}
	nsid = 0;
	while ((ns = kvb_adm_next_ns(a, nsid))) {
		st = store_kv(ns, on);
		if (st)
			return st;
		nsid = ns->nsid;
	}
	return 0;
}

static const struct feature features[] = {
	{ GKV_FEAT_ARBITRATION, CAP_CHANGEABLE, 0, 0xffffff07, get_arbitration, set_arbitration },
	{ GKV_FEAT_POWER_MGMT, CAP_CHANGEABLE, 0, 0xff, get_zero, set_power },
	{ GKV_FEAT_TEMP_THRESH, CAP_CHANGEABLE, 0x003f0000, 0x003fffff, get_temp, set_temp },
	{ GKV_FEAT_VWC, CAP_CHANGEABLE, 0, 0x1, get_vwc, set_vwc },
	{ GKV_FEAT_NUM_QUEUES, CAP_CHANGEABLE, 0, UINT32_MAX, get_queues, set_queues },
	{ GKV_FEAT_IRQ_COALESCE, CAP_CHANGEABLE, 0, 0xffff, get_coalesce, set_coalesce },
	{ GKV_FEAT_IRQ_CONFIG, CAP_CHANGEABLE, 0xffff, 0x1ffff, get_irq, set_irq },
	{ GKV_FEAT_ASYNC_EVENT, CAP_CHANGEABLE, 0, 0xff, get_events, set_events },
	{ GKV_FEAT_IOCS_PROFILE, CAP_CHANGEABLE, 0, 0x1ff, get_zero, set_iocs },
	{ GKV_FEAT_KV, CAP_SAVEABLE | CAP_NS | CAP_CHANGEABLE, 0, GKV_FEAT_KV_EDNEK, get_kv,
	  set_kv },
};

static const struct feature *find(uint8_t fid)
{
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
		if (features[i].fid == fid)
			return &features[i];
	return NULL;
}

uint16_t kvb_adm_get_features(struct kvb_adm *a)
{
	const struct feature *f = find((uint8_t)a->cdw[10]);
	uint32_t sel = a->cdw[10] >> 8 & 7;
	uint16_t st;

	if (!f || sel > SEL_SUPPORTED)
		return kvb_adm_fail(a, GKV_SC_INVALID_FIELD, 40);
	st = kvb_adm_reserved(a, 10, 0xfffff800);
	if (!st)
		st = kvb_adm_reserved(a, 11, ~f->get_mask);
	for (unsigned int dw = 12; !st && dw < 16; dw++)
		st = kvb_adm_reserved(a, dw, UINT32_MAX);
	if (st)
		return st;
	/* A feature of the controller is the same whichever namespace is named. */
	switch (sel) {
	case SEL_SUPPORTED:
		a->dw0 = f->caps;
		return 0;
	case SEL_SAVED:	/* without a saved value the default counts */
		return f->get(a, !(f->caps & CAP_SAVEABLE), &a->dw0);
	default:
		return f->get(a, sel == SEL_DEFAULT, &a->dw0);
	}
}

uint16_t kvb_adm_set_features(struct kvb_adm *a)
{
	const struct feature *f = find((uint8_t)a->cdw[10]);
	uint16_t st;

	if (!f)
		return kvb_adm_fail(a, GKV_SC_INVALID_FIELD, 40);
	st = kvb_adm_reserved(a, 10, 0x7fffff00);
	for (unsigned int dw = 12; !st && dw < 16; dw++)
		st = kvb_adm_reserved(a, dw, UINT32_MAX);
	if (st)
		return st;
	if ((a->cdw[10] & SV) && !(f->caps & CAP_SAVEABLE))
		return kvb_adm_fail(a, GKV_SC_FEAT_NOT_SAVEABLE, 43);
	if (!(f->caps & CAP_NS) && a->nsid && a->nsid != GKV_NSID_ALL)
		return kvb_adm_fail(a, GKV_SC_FEAT_NOT_NS, 4);
	st = kvb_adm_reserved(a, 11, ~f->set_mask);
	return st ? st : f->set(a);
}
