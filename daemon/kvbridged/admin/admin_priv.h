/* SPDX-License-Identifier: MIT */
/*
 * Shared by the parts of the admin module.
 */
#ifndef KVB_ADMIN_PRIV_H
#define KVB_ADMIN_PRIV_H

#include <endian.h>

#include "admin/admin.h"

/* A command being run: its fields in host order, and what it will answer. */
struct kvb_adm {
	struct kvb_ctrl *ctrl;
	struct kvb_admin_peer *peer;
	uint32_t nsid;
	uint32_t cdw[16];	/* 2, 3 and 10 to 15 are set */
	void *out;		/* zeroed up to cap */
	uint32_t cap;		/* bytes */
	uint32_t len;		/* bytes to return */
	uint32_t dw0;
	uint16_t cid;
	uint16_t param;		/* for the error log: where the fault is */
	bool held;
};

/* Statuses come without DNR. */
uint16_t kvb_adm_identify(struct kvb_adm *a);
uint16_t kvb_adm_get_log(struct kvb_adm *a);
uint16_t kvb_adm_get_features(struct kvb_adm *a);
uint16_t kvb_adm_set_features(struct kvb_adm *a);

/* Fail with @status for the field at @byte of the command. */
uint16_t kvb_adm_fail(struct kvb_adm *a, uint16_t status, unsigned int byte);

/* 02h when any bit of @mask is set in command dword @dw. */
uint16_t kvb_adm_reserved(struct kvb_adm *a, unsigned int dw, uint32_t mask);

/*
 * The active namespace the command names. *@ns may be one the peer can only read.
 * Invalid NSID: 0Bh; inactive, invisible to the peer, or broadcast: 02h.
 */
uint16_t kvb_adm_ns(struct kvb_adm *a, struct kvb_ns **ns);

/* The peer's lowest active namespace above @nsid, or NULL. */
struct kvb_ns *kvb_adm_next_ns(struct kvb_adm *a, uint32_t nsid);

int kvb_adm_access(struct kvb_adm *a, const struct kvb_ns *ns);

/* Fill an ASCII field: padded with spaces, not terminated. */
void kvb_adm_ascii(char *field, size_t size, const char *text);

/* A namespace has a write cache that Flush empties. */
bool kvb_adm_ns_vwc(const struct kvb_ns *ns);
bool kvb_adm_has_vwc(const struct kvb_ctrl *ctrl);

#endif
