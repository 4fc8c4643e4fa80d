/* SPDX-License-Identifier: MIT */
/*
 * Identify (06h): what the controller and its namespaces are.
 */
#include <stdio.h>
#include <string.h>

#include <uuid/uuid.h>

#include "admin/admin_priv.h"

#define VERSION_2_0 0x00020000u
#define KV_ALONE (1u << GKV_CSI_KV)

void kvb_adm_ascii(char *field, size_t size, const char *text)
{
	size_t len = strlen(text);

	memset(field, ' ', size);
	memcpy(field, text, len < size ? len : size);
}

static uint16_t id_ctrl(struct kvb_adm *a)
{
	const struct kvb_ctrl *ctrl = a->ctrl;
	struct gkv_id_ctrl *id = a->out;
	char text[37], sn[21];

	for (int i = 0; i < 10; i++)
		snprintf(sn + 2 * i, 3, "%02x", ctrl->uuid[i]);
	kvb_adm_ascii(id->sn, sizeof(id->sn), sn);
	kvb_adm_ascii(id->mn, sizeof(id->mn), "gkv kvbridged");
	kvb_adm_ascii(id->fr, sizeof(id->fr), GKV_BUILD_VERSION);
	/* CMIC and NMIC stay 0: multipath would rename or hide the namespaces. */
	id->cntlid = htole16(KVB_CNTLID);
	id->ver = htole32(VERSION_2_0);
	id->cntrltype = 1;			/* I/O controller */
	id->acl = KVB_ACL;
	id->aerl = KVB_AERL;
	id->frmw = 1 << 1 | 1;			/* one slot, read-only */
	id->lpa = 1 << 2 | 1 << 1;		/* log offsets; Commands Supported and Effects */
	id->elpe = KVB_ELPE;
	id->sqes = 0x66;
	id->cqes = 0x44;
	id->maxcmd = htole16((uint16_t)(ctrl->max_depth > 0xffff ? 0xffff : ctrl->max_depth));
	id->nn = htole32(ctrl->nn);
	id->oncs = htole16(1 << 4);		/* Save and Select of features */
	/* Flush does not take the broadcast NSID: bits 2:1 are 10b. */
	id->vwc = 2 << 1 | kvb_adm_has_vwc(ctrl);
	id->sgls = htole32(GKV_SGLS_BYTE_GRANULAR | GKV_SGLS_BIT_BUCKET | GKV_SGLS_LONGER);
	uuid_unparse_lower(ctrl->uuid, text);
	snprintf(id->subnqn, sizeof(id->subnqn), "nqn.2014-08.org.nvmexpress:uuid:%s", text);
	return 0;
}

/*
 * The NVM command set's structure. The namespace is not of that set and the standard has
 * this fail; but clients take a namespace whose NCAP is 0 here for an inactive one, whatever
 * its command set, so it is a dummy of one block or more.
 */
static uint16_t id_ns(struct kvb_adm *a)
{
	struct gkv_id_ns *id = a->out;
	struct kvb_store_info info;
	struct kvb_ns *ns;
	uint16_t st = kvb_adm_ns(a, &ns);

	if (st)
		return st;
	kvb_ns_info(ns, &info);
	id->nsze = htole64(info.capacity / 512 ? info.capacity / 512 : 1);
	id->ncap = id->nsze;
	id->nuse = id->nsze;
	return 0;
}

static uint16_t id_active(struct kvb_adm *a)
{
	__le32 *list = a->out;
	struct kvb_ns *ns;
	uint32_t nsid = a->nsid;

	if (nsid >= GKV_NSID_ALL - 1)
		return kvb_adm_fail(a, GKV_SC_INVALID_NS, 4);
	for (int i = 0; i < 1024 && (ns = kvb_adm_next_ns(a, nsid)); i++) {
		nsid = ns->nsid;
		list[i] = htole32(nsid);
	}
	return 0;
}

static uint16_t id_descs(struct kvb_adm *a)
{
	uint8_t *p = a->out;
	struct kvb_ns *ns;
	uint16_t st = kvb_adm_ns(a, &ns);

	if (st)
		return st;
	*p++ = GKV_NIDT_UUID;
	*p++ = sizeof(ns->uuid);
	p += 2;
	memcpy(p, ns->uuid, sizeof(ns->uuid));
	p += sizeof(ns->uuid);
	*p++ = GKV_NIDT_CSI;
	*p++ = 1;
	p += 2;
	*p = GKV_CSI_KV;
	return 0;
}

/* Write protected as this peer sees it. */
static uint8_t nsattr(struct kvb_adm *a, const struct kvb_ns *ns, const struct kvb_store_info *info)
{
	return info->read_only || kvb_adm_access(a, ns) < 2;
}

static uint16_t id_ns_kv(struct kvb_adm *a)
{
	struct gkv_id_ns_kv *id = a->out;
	struct kvb_store_info info;
	struct kvb_ns *ns;
	uint16_t st = kvb_adm_ns(a, &ns);

	if (st)
		return st;
	kvb_ns_info(ns, &info);
	id->nsze = htole64(info.capacity);
	id->nuse = htole64(info.used < info.capacity ? info.used : info.capacity);
	id->nkvf = 0;		/* 0's based: one format, which is in use */
	id->kvfc = 0;
	id->novg = htole32(info.block_size > 1 ? info.block_size : 0);
	id->nsattr = nsattr(a, ns, &info);
	id->kvf[0].key_max = htole16((uint16_t)info.key_max);
	id->kvf[0].value_max = htole32(info.value_max);
	return 0;
}

static uint16_t id_ns_indep(struct kvb_adm *a)
{
	struct gkv_id_ns_indep *id = a->out;
	struct kvb_store_info info;
	struct kvb_ns *ns;
	uint16_t st = kvb_adm_ns(a, &ns);

	if (st)
		return st;
	kvb_ns_info(ns, &info);
	id->nsattr = nsattr(a, ns, &info);
	id->nstat = info.ready;
	return 0;
}

static uint16_t id_iocs(struct kvb_adm *a)
{
	__le64 *combinations = a->out;
	uint16_t cntid = (uint16_t)(a->cdw[10] >> 16);

	if (cntid != 0xffff && cntid != KVB_CNTLID)
		return kvb_adm_fail(a, GKV_SC_INVALID_FIELD, 42);
	combinations[0] = htole64(KV_ALONE);
	return 0;
}

uint16_t kvb_adm_identify(struct kvb_adm *a)
{
	uint8_t cns = (uint8_t)a->cdw[10];
	uint8_t csi = (uint8_t)(a->cdw[11] >> 24);
	bool has_csi = false, has_nsid = true;
	uint16_t st;

	switch (cns) {
	case GKV_CNS_NS:
	case GKV_CNS_ACTIVE_NS:
	case GKV_CNS_NS_DESC:
	case GKV_CNS_INDEP_NS:
		break;
	case GKV_CNS_IOCS_NS:
	case GKV_CNS_IOCS_ACTIVE_NS:
		has_csi = true;
		break;
	case GKV_CNS_IOCS_CTRL:
		has_csi = true;
		has_nsid = false;
		break;
	case GKV_CNS_CTRL:
	case GKV_CNS_IOCS:
		has_nsid = false;
		break;
	default:
		return kvb_adm_fail(a, GKV_SC_INVALID_FIELD, 40);
	}
	/* The controller is named by CNS 1Ch only. */
	st = kvb_adm_reserved(a, 10, cns == GKV_CNS_IOCS ? 0x0000ff00 : 0xffffff00);
	if (!st)
		st = kvb_adm_reserved(a, 11, has_csi ? 0x00ffffff : UINT32_MAX);
	for (unsigned int dw = 12; !st && dw < 16; dw++)
		st = kvb_adm_reserved(a, dw, UINT32_MAX);
	if (!st && !has_nsid && a->nsid)
		st = kvb_adm_fail(a, GKV_SC_INVALID_FIELD, 4);
	if (st)
		return st;
	if (has_csi && csi != GKV_CSI_KV)
		return kvb_adm_fail(a, GKV_SC_INVALID_IOCS, 47);
	if (a->cap < GKV_ADMIN_DATA_SIZE)
		return GKV_SC_INVALID_FIELD;
	a->len = GKV_ADMIN_DATA_SIZE;

	switch (cns) {
	case GKV_CNS_NS:
		return id_ns(a);
	case GKV_CNS_CTRL:
		return id_ctrl(a);
	case GKV_CNS_ACTIVE_NS:
	case GKV_CNS_IOCS_ACTIVE_NS:	/* every namespace is of the KV command set */
		return id_active(a);
	case GKV_CNS_NS_DESC:
		return id_descs(a);
	case GKV_CNS_IOCS_NS:
		return id_ns_kv(a);
	case GKV_CNS_IOCS_CTRL:		/* all zero in KV 1.0 */
		return 0;
	case GKV_CNS_INDEP_NS:
		return id_ns_indep(a);
	default:
		return id_iocs(a);
	}
}
