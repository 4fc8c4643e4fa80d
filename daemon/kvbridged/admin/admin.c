/* SPDX-License-Identifier: MIT */
#include "admin/admin.h"

#include <string.h>

#include "admin/admin_priv.h"
#include "config/namespace.h"

void kvb_ctrl_init(struct kvb_ctrl *ctrl)
{
	ctrl->nn = 0;
	for (unsigned int i = 0; i < ctrl->nns; i++)
		if (ctrl->ns[i]->nsid > ctrl->nn)
			ctrl->nn = ctrl->ns[i]->nsid;
	atomic_init(&ctrl->errors, 0);
	atomic_init(&ctrl->media_errors, 0);
	memset((void *)ctrl->ring, 0, sizeof(ctrl->ring));
}

uint16_t kvb_admin_dnr(uint16_t status)
{
	switch (GKV_STATUS_CODE(status)) {
	case GKV_SC_SUCCESS:
	/* May succeed later: memory, disk space, or a slot that becomes free. */
	case GKV_SC_INTERNAL:
	case GKV_SC_ABORT_REQUESTED:
	case GKV_SC_ABORTED_SQ_DELETION:
	case GKV_SC_TRANSIENT:
	case GKV_SC_ABORT_LIMIT:
	case GKV_SC_AER_LIMIT:
		return status & (uint16_t)~GKV_DNR;
	default:
		return status | GKV_DNR;
	}
}

uint16_t kvb_adm_fail(struct kvb_adm *a, uint16_t status, unsigned int byte)
{
	a->param = (uint16_t)byte;
	return status;
}

uint16_t kvb_adm_reserved(struct kvb_adm *a, unsigned int dw, uint32_t mask)
{
	return a->cdw[dw] & mask ? kvb_adm_fail(a, GKV_SC_INVALID_FIELD, dw * 4) : 0;
}

int kvb_adm_access(struct kvb_adm *a, const struct kvb_ns *ns)
{
	const struct kvb_admin_peer *p = a->peer;

	return kvb_ns_access(ns, p->uid, p->gid, p->groups, p->ngroups);
}

uint16_t kvb_adm_ns(struct kvb_adm *a, struct kvb_ns **ns)
{
	if (a->nsid == GKV_NSID_ALL)
		return kvb_adm_fail(a, GKV_SC_INVALID_FIELD, 4);
	if (!a->nsid || a->nsid > a->ctrl->nn)
		return kvb_adm_fail(a, GKV_SC_INVALID_NS, 4);
	*ns = kvb_adm_next_ns(a, a->nsid - 1);
	if (!*ns || (*ns)->nsid != a->nsid)
		return kvb_adm_fail(a, GKV_SC_INVALID_FIELD, 4);
	return 0;
}

struct kvb_ns *kvb_adm_next_ns(struct kvb_adm *a, uint32_t nsid)
{
	struct kvb_ns *best = NULL;

	for (unsigned int i = 0; i < a->ctrl->nns; i++) {
		struct kvb_ns *ns = a->ctrl->ns[i];

		if (ns->nsid > nsid && (!best || ns->nsid < best->nsid) && kvb_adm_access(a, ns))
			best = ns;
	}
	return best;
}

bool kvb_adm_ns_vwc(const struct kvb_ns *ns)
{
	struct kvb_store_info info;

	kvb_ns_info(ns, &info);
	return info.volatile_cache && !ns->sync;
}

bool kvb_adm_has_vwc(const struct kvb_ctrl *ctrl)
{
	for (unsigned int i = 0; i < ctrl->nns; i++)
		if (kvb_adm_ns_vwc(ctrl->ns[i]))
			return true;
	return false;
}

/* Refuses what no command of this module uses: fused operations, an SGL for the data. */
static uint16_t check_common(struct kvb_adm *a, const struct gkv_admin_sqe *sqe)
{
	uint16_t st;

	if (sqe->flags)
		return kvb_adm_fail(a, GKV_SC_INVALID_FIELD, 1);
	st = kvb_adm_reserved(a, 2, UINT32_MAX);
	return st ? st : kvb_adm_reserved(a, 3, UINT32_MAX);
}

static uint16_t check_rest_reserved(struct kvb_adm *a, unsigned int from)
{
	if (a->nsid)
		return kvb_adm_fail(a, GKV_SC_INVALID_FIELD, 4);
	for (unsigned int dw = from; dw < 16; dw++)
		if (a->cdw[dw])
			return kvb_adm_fail(a, GKV_SC_INVALID_FIELD, dw * 4);
	return 0;
}

static void fill_cqe(struct gkv_cqe *cqe, uint32_t dw0, uint16_t cid, uint16_t status)
{
	memset(cqe, 0, sizeof(*cqe));
	cqe->dw0 = htole32(dw0);
	cqe->cid = htole16(cid);
	cqe->status = htole16((uint16_t)(status << 1));
}

/* ---- Asynchronous events ---- */

void kvb_admin_peer_init(struct kvb_admin_peer *peer)
{
	peer->arbitration = 0x7;	/* no limit on the burst */
	peer->temp_over = 0xffff;
	peer->temp_under = 0;
	peer->irq_coalesce = 0;
	peer->irq_config = 0;
	peer->event_config = 0;
	peer->naer = 0;
	memset(peer->events, 0, sizeof(peer->events));
}

/* The oldest request waiting gives its identifier to @out. */
static void pop_aer(struct kvb_admin_peer *peer, unsigned int i, uint16_t *cid)
{
	*cid = peer->aer[i];
	peer->naer--;
	memmove(&peer->aer[i], &peer->aer[i + 1], (peer->naer - i) * sizeof(peer->aer[0]));
}

static uint32_t take_event(struct kvb_admin_peer *peer, uint8_t type)
{
	struct kvb_admin_event *e = &peer->events[type];

	e->pending = false;
	e->masked = true;
	return type | (uint32_t)e->info << 8 | (uint32_t)e->lid << 16;
}

void kvb_admin_event(struct kvb_admin_peer *peer, uint8_t type, uint8_t info, uint8_t lid)
{
	struct kvb_admin_event *e = &peer->events[type & 7];
	struct gkv_cqe cqe;
	uint16_t cid;

	if (e->masked || e->pending)
		return;
	/* Health events are reported when the host asked for any of them. */
	if (type == KVB_EVENT_SMART && !(peer->event_config & 0xff))
		return;
	e->pending = true;
	e->info = info;
	e->lid = lid;
	if (!peer->naer)
		return;
	pop_aer(peer, 0, &cid);
	fill_cqe(&cqe, take_event(peer, type & 7), cid, 0);
	peer->complete(peer, &cqe);
}

static uint16_t async_event(struct kvb_adm *a)
{
	struct kvb_admin_peer *peer = a->peer;
	uint16_t st = check_rest_reserved(a, 10);

	if (st)
		return st;
	for (uint8_t type = 0; type < 8; type++) {
		if (peer->events[type].pending) {
			a->dw0 = take_event(peer, type);
			return 0;
		}
	}
	if (!peer->complete || peer->naer > KVB_AERL)
		return GKV_SC_AER_LIMIT;
	peer->aer[peer->naer++] = a->cid;
	a->held = true;
	return 0;
}

static uint16_t abort_cmd(struct kvb_adm *a)
{
	struct kvb_admin_peer *peer = a->peer;
	uint16_t sqid = (uint16_t)a->cdw[10];
	uint16_t cid = (uint16_t)(a->cdw[10] >> 16);
	uint16_t st = check_rest_reserved(a, 11);

	if (st)
		return st;
	a->dw0 = 1;	/* not aborted: also the answer when there is no such command */
	if (sqid) {
		if (peer->abort && peer->abort(peer, sqid, cid))
			a->dw0 = 0;
		return 0;
	}
	for (unsigned int i = 0; i < peer->naer; i++) {
		struct gkv_cqe cqe;

		if (peer->aer[i] != cid)
			continue;
		pop_aer(peer, i, &cid);
		fill_cqe(&cqe, 0, cid, kvb_admin_dnr(GKV_SC_ABORT_REQUESTED));
		peer->complete(peer, &cqe);
		a->dw0 = 0;
		break;
	}
	return 0;
}

/* ---- Commands ---- */

static uint16_t run(struct kvb_adm *a, const struct gkv_admin_sqe *sqe)
{
	static uint16_t (*const cmds[])(struct kvb_adm *a) = {
		[GKV_ADM_GET_LOG_PAGE] = kvb_adm_get_log,
		[GKV_ADM_IDENTIFY] = kvb_adm_identify,
		[GKV_ADM_ABORT] = abort_cmd,
		[GKV_ADM_SET_FEATURES] = kvb_adm_set_features,
		[GKV_ADM_GET_FEATURES] = kvb_adm_get_features,
		[GKV_ADM_ASYNC_EVENT] = async_event,
	};
	uint16_t st;

	if (sqe->opcode >= sizeof(cmds) / sizeof(cmds[0]) || !cmds[sqe->opcode])
		return kvb_adm_fail(a, GKV_SC_INVALID_OPCODE, 0);
	st = check_common(a, sqe);
	return st ? st : cmds[sqe->opcode](a);
}

enum kvb_admin_result kvb_admin_exec(struct kvb_ctrl *ctrl, struct kvb_admin_peer *peer,
				     const struct gkv_admin_sqe *sqe, const void *in,
				     uint32_t in_len, struct gkv_cqe *cqe, void *out,
				     uint32_t *out_len)
{
	struct kvb_adm a = {
		.ctrl = ctrl,
		.peer = peer,
		.nsid = le32toh(sqe->nsid),
		.cdw = {
			[2] = le32toh(sqe->cdw2),
			[3] = le32toh(sqe->cdw3),
			[10] = le32toh(sqe->cdw10),
			[11] = le32toh(sqe->cdw11),
			[12] = le32toh(sqe->cdw12),
			[13] = le32toh(sqe->cdw13),
			[14] = le32toh(sqe->cdw14),
			[15] = le32toh(sqe->cdw15),
		},
		.out = out,
		.cap = *out_len,
		.cid = le16toh(sqe->cid),
		.param = KVB_PARAM_NONE,
	};
	uint16_t st;

	/* No command of this module takes data; what a front end read is not looked at. */
	(void)in;
	(void)in_len;
	if (a.cap)
		memset(out, 0, a.cap);
	st = run(&a, sqe);
	if (a.held) {
		*out_len = 0;
		return KVB_ADMIN_HELD;
	}
	st = kvb_admin_dnr(st);
	if (st)
		kvb_admin_log_error(ctrl, 0, a.cid, st, a.nsid, sqe->opcode, a.param);
	/* Nothing of a half-built answer goes out. */
	*out_len = st ? 0 : a.len;
	fill_cqe(cqe, st ? 0 : a.dw0, a.cid, st);
	return KVB_ADMIN_DONE;
}
