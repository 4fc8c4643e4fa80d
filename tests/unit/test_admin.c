/* SPDX-License-Identifier: MIT */
/*
 * The admin module as a controller: features, Abort and events, statuses with their DNR, and
 * who may change what.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "admin_rig.h"

static void test_opcodes(void **state)
{
	(void)state;
	for (unsigned int op = 0; op < 256; op++) {
		if (op == 0x02 || op == 0x06 || (op >= 0x08 && op <= 0x0a) || op == 0x0c)
			continue;
		assert_int_equal(cmd(&root, (uint8_t)op, 0, 0, 0), BAD_OPCODE);
	}
}

/* ---- Features ---- */

static void test_features(void **state)
{
	static const struct {
		uint8_t fid;
		uint32_t dflt, value, caps;
	} f[] = {
		{ 0x01, 0x7, 0x03020104, 4 },
		{ 0x02, 0, 0xe0, 4 },
		{ 0x04, 0xffff, 0x0150, 4 },
		{ 0x07, 0x03ff03ff, 0x00070007, 4 },
		{ 0x08, 0, 0x0a05, 4 },
		{ 0x09, 0, 0x10000, 4 },
		{ 0x0b, 0, 0x1f, 4 },
		{ 0x19, 0, 0, 4 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(f) / sizeof(f[0]); i++) {
		uint32_t now = f[i].value;

		if (f[i].fid == 0x02)		/* the workload hint is not kept */
			now = 0;
		if (f[i].fid == 0x07)		/* all of them, whatever is asked for */
			now = f[i].dflt;
		assert_int_equal(get_feature(&root, 0, f[i].fid, 0), OK);
		assert_int_equal(le32toh(cqe.dw0), f[i].dflt);
		assert_int_equal(data_len, 0);
		assert_int_equal(set_feature(&root, 0, f[i].fid, f[i].value), OK);
		assert_int_equal(le32toh(cqe.dw0), f[i].fid == 0x07 ? f[i].dflt : 0);
		assert_int_equal(get_feature(&root, 0, f[i].fid, 0), OK);
		assert_int_equal(le32toh(cqe.dw0), now);
		assert_int_equal(get_feature(&root, 0, 0x100 | f[i].fid, 0), OK);
		assert_int_equal(le32toh(cqe.dw0), f[i].dflt);
		assert_int_equal(get_feature(&root, 0, 0x200 | f[i].fid, 0), OK);
		assert_int_equal(le32toh(cqe.dw0), f[i].dflt);
		assert_int_equal(get_feature(&root, 0, 0x300 | f[i].fid, 0), OK);
		assert_int_equal(le32toh(cqe.dw0), f[i].caps);
		assert_int_equal(get_feature(&root, 0, 0x400 | f[i].fid, 0), BAD_FIELD);
		assert_int_equal(get_feature(&root, 0, 0x800 | f[i].fid, 0), BAD_FIELD);
		/* Another client keeps its own. */
		assert_int_equal(get_feature(&user, 0, f[i].fid, 0), OK);
		assert_int_equal(le32toh(cqe.dw0), f[i].dflt);
		/* The controller's: not saveable, and of no one namespace. */
		assert_int_equal(set_feature(&root, 0, 0x80000000 | f[i].fid, f[i].value),
				 GKV_SC_FEAT_NOT_SAVEABLE | GKV_DNR);
		assert_int_equal(set_feature(&root, 1, f[i].fid, f[i].value),
				 GKV_SC_FEAT_NOT_NS | GKV_DNR);
		assert_int_equal(set_feature(&root, ALL, f[i].fid, f[i].value), OK);
		assert_int_equal(set_feature(&root, 0, 0x100 | f[i].fid, f[i].value), BAD_FIELD);
	}
}

static void test_feature_values(void **state)
{
	static const struct {
		uint8_t fid;
		uint32_t value;
		uint16_t status;
	} f[] = {
		{ 0x01, 0x08, BAD_FIELD },
		{ 0x02, 0x01, BAD_FIELD },
		{ 0x02, 0x100, BAD_FIELD },
		{ 0x04, 0x00010000, BAD_FIELD },
		{ 0x04, 0x00200000, BAD_FIELD },
		{ 0x04, 0x000f0123, OK },
		{ 0x07, 0x0000ffff, BAD_FIELD },
		{ 0x07, 0xffff0000, BAD_FIELD },
		{ 0x08, 0x10000, BAD_FIELD },
		{ 0x09, 0x00001, BAD_FIELD },
		{ 0x0b, 0x100, BAD_FIELD },
		{ 0x19, 1, GKV_SC_IOCS_COMBINATION | GKV_DNR },
		{ 0x19, 0x200, BAD_FIELD },
		{ 0x06, 0, BAD_FIELD },		/* no write cache here */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(f) / sizeof(f[0]); i++)
		if (set_feature(&root, 0, f[i].fid, f[i].value) != f[i].status)
			fail_msg("feature %02x = %x: %x", f[i].fid, f[i].value,
				 le16toh(cqe.status) >> 1);
	/* Both thresholds. */
	assert_int_equal(set_feature(&root, 0, 0x04, 0x00100111), OK);
	assert_int_equal(get_feature(&root, 0, 0x04, 0x00100000), OK);
	assert_int_equal(cqe.dw0, htole32(0x111));
	assert_int_equal(get_feature(&root, 0, 0x04, 0), OK);
	assert_int_equal(cqe.dw0, htole32(0x123));
	assert_int_equal(get_feature(&root, 0, 0x04, 0x00010000), BAD_FIELD);
	for (unsigned int fid = 0; fid < 256; fid++) {
		if (fid == 1 || fid == 2 || fid == 4 || (fid >= 6 && fid <= 9) || fid == 0x0b ||
		    fid == 0x19 || fid == 0x20)
			continue;
		assert_int_equal(get_feature(&root, 0, fid, 0), BAD_FIELD);
		assert_int_equal(set_feature(&root, 0, fid, 0), BAD_FIELD);
	}
}

static void test_vwc(void **state)
{
	(void)state;
	assert_int_equal(get_feature(&root, 0, 0x06, 0), BAD_FIELD);
	fake_info.volatile_cache = true;
	for (int i = 0; i < 3; i++)
		atomic_store(&nss[i]->vwc, true);
	assert_int_equal(get_feature(&root, 0, 0x06, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 1);
	assert_int_equal(set_feature(&user, 0, 0x06, 0), DENIED);
	assert_true(atomic_load(&nss[0]->vwc));
	assert_int_equal(set_feature(&root, 0, 0x06, 2), BAD_FIELD);
	assert_int_equal(set_feature(&root, 0, 0x06, 0), OK);
	for (int i = 0; i < 3; i++)
		assert_false(atomic_load(&nss[i]->vwc));
	assert_int_equal(get_feature(&root, 0, 0x06, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 0);
	assert_int_equal(get_feature(&root, 0, 0x106, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 1);
}

static void test_ednek(void **state)
{
	struct kvb_err err;
	int ret;

	(void)state;
	assert_int_equal(get_feature(&root, 1, 0x20, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 0);
	assert_int_equal(set_feature(&root, 1, 0x20, 1), OK);
	assert_true(atomic_load(&nss[0]->ednek));
	assert_false(atomic_load(&nss[1]->ednek));
	assert_int_equal(get_feature(&root, 1, 0x20, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 1);
	assert_int_equal(get_feature(&root, 1, 0x120, 0), OK);		/* default */
	assert_int_equal(le32toh(cqe.dw0), 0);
	assert_int_equal(get_feature(&root, 1, 0x220, 0), OK);		/* saved */
	assert_int_equal(le32toh(cqe.dw0), 1);
	assert_int_equal(get_feature(&root, 1, 0x320, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 7);
	assert_int_equal(set_feature(&root, 1, 0x80000020, 0), OK);	/* with SV */
	assert_false(atomic_load(&nss[0]->ednek));
	assert_int_equal(set_feature(&root, 1, 0x20, 2), BAD_FIELD);
	/* NSIDs. */
	assert_int_equal(get_feature(&root, 0, 0x20, 0), BAD_NS);
	assert_int_equal(get_feature(&root, 6, 0x20, 0), BAD_NS);
	assert_int_equal(get_feature(&root, 2, 0x20, 0), BAD_FIELD);
	assert_int_equal(get_feature(&root, ALL, 0x20, 0), BAD_FIELD);
	assert_int_equal(set_feature(&root, 0, 0x20, 1), BAD_NS);
	assert_int_equal(set_feature(&user, 5, 0x20, 1), BAD_FIELD);
	/* Reading is not writing. */
	assert_int_equal(get_feature(&user, 3, 0x20, 0), OK);
	assert_int_equal(set_feature(&user, 3, 0x20, 1), DENIED);
	assert_int_equal(set_feature(&user, 1, 0x20, 1), OK);
	/* Broadcast: all that are active for the peer, or none. */
	assert_int_equal(set_feature(&user, ALL, 0x20, 0), DENIED);
	assert_true(atomic_load(&nss[0]->ednek));
	assert_int_equal(set_feature(&root, ALL, 0x20, 1), OK);
	for (int i = 0; i < 3; i++)
		assert_true(atomic_load(&nss[i]->ednek));
	/* Across a restart. */
	kvb_ns_close(nss[1]);
	nss[1] = kvb_ns_open(&cfg.ns[1], &cfg, &ret, &err);
	assert_non_null(nss[1]);
	assert_int_equal(get_feature(&root, 5, 0x20, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 1);
}

/* ---- Abort and events ---- */

static struct gkv_admin_sqe aer(uint16_t cid)
{
	return (struct gkv_admin_sqe){ .opcode = GKV_ADM_ASYNC_EVENT, .cid = htole16(cid) };
}

static void test_aer(void **state)
{
	struct gkv_admin_sqe sqe;

	(void)state;
	for (uint16_t i = 0; i < 4; i++) {
		sqe = aer(10 + i);
		assert_int_equal(submit(&root, &sqe), KVB_ADMIN_HELD);
		assert_int_equal(data_len, 0);
	}
	sqe = aer(14);
	assert_int_equal(exec(&root, &sqe), GKV_SC_AER_LIMIT);		/* no DNR */
	assert_int_equal(nheld, 0);
	/* The oldest is used up by an event; the same type is masked until its page is read. */
	kvb_admin_event(&root, KVB_EVENT_ERROR, KVB_EVENT_BAD_DB_VALUE, GKV_LOG_ERROR);
	assert_int_equal(nheld, 1);
	assert_int_equal(le16toh(held[0].cid), 10);
	assert_int_equal(held[0].status, 0);
	assert_int_equal(le32toh(held[0].dw0), 0x00010100);
	kvb_admin_event(&root, KVB_EVENT_ERROR, KVB_EVENT_BAD_DB_VALUE, GKV_LOG_ERROR);
	assert_int_equal(nheld, 1);
	assert_int_equal(cmd(&root, GKV_ADM_GET_LOG_PAGE, 0, 0x01 | 1 << 15, 0), OK);	/* RAE */
	kvb_admin_event(&root, KVB_EVENT_ERROR, KVB_EVENT_BAD_DB_VALUE, GKV_LOG_ERROR);
	assert_int_equal(nheld, 1);
	assert_int_equal(cmd(&root, GKV_ADM_GET_LOG_PAGE, 0, 0x01, 0), OK);
	kvb_admin_event(&root, KVB_EVENT_ERROR, KVB_EVENT_BAD_DOORBELL, GKV_LOG_ERROR);
	assert_int_equal(nheld, 2);
	assert_int_equal(le16toh(held[1].cid), 11);
	/* Health events only when asked for. */
	kvb_admin_event(&root, KVB_EVENT_SMART, 0, GKV_LOG_SMART);
	assert_int_equal(nheld, 2);
	assert_int_equal(set_feature(&root, 0, 0x0b, 1), OK);
	kvb_admin_event(&root, KVB_EVENT_SMART, 0, GKV_LOG_SMART);
	assert_int_equal(nheld, 3);
	assert_int_equal(le32toh(held[2].dw0), 0x00020001);
}

static void test_aer_pending(void **state)
{
	struct gkv_admin_sqe sqe = aer(1);

	(void)state;
	/* A front end that cannot hold: over the limit at once, unless there is an event. */
	assert_int_equal(exec(&user, &sqe), GKV_SC_AER_LIMIT);
	kvb_admin_event(&user, KVB_EVENT_ERROR, KVB_EVENT_BAD_DB_VALUE, GKV_LOG_ERROR);
	assert_int_equal(exec(&user, &sqe), OK);
	assert_int_equal(le32toh(cqe.dw0), 0x00010100);
	assert_int_equal(exec(&user, &sqe), GKV_SC_AER_LIMIT);
	sqe.cdw10 = htole32(1);
	assert_int_equal(exec(&user, &sqe), BAD_FIELD);
}

static void test_abort(void **state)
{
	struct gkv_admin_sqe sqe = aer(20);

	(void)state;
	assert_int_equal(submit(&root, &sqe), KVB_ADMIN_HELD);
	sqe = aer(21);
	assert_int_equal(submit(&root, &sqe), KVB_ADMIN_HELD);
	assert_int_equal(cmd(&root, GKV_ADM_ABORT, 0, 20u << 16, 0), OK);
	assert_int_equal(cqe.dw0, 0);
	assert_int_equal(nheld, 1);
	assert_int_equal(le16toh(held[0].cid), 20);
	assert_int_equal(le16toh(held[0].status) >> 1, GKV_SC_ABORT_REQUESTED);
	/* Unknown, or not to be aborted: success, and bit 0 says that it was not. */
	assert_int_equal(cmd(&root, GKV_ADM_ABORT, 0, 20u << 16, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 1);
	assert_int_equal(cmd(&root, GKV_ADM_ABORT, 0, 76u << 16 | 2, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 1);
	assert_int_equal(cmd(&root, GKV_ADM_ABORT, 0, 77u << 16 | 2, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 0);
	assert_int_equal(cmd(&user, GKV_ADM_ABORT, 0, 77u << 16 | 2, 0), OK);
	assert_int_equal(le32toh(cqe.dw0), 1);
	assert_int_equal(cmd(&root, GKV_ADM_ABORT, 1, 20u << 16, 0), BAD_FIELD);
	assert_int_equal(cmd(&root, GKV_ADM_ABORT, 0, 20u << 16, 1), BAD_FIELD);
}

static void test_dnr(void **state)
{
	static const uint16_t retry[] = { GKV_SC_SUCCESS, GKV_SC_INTERNAL, GKV_SC_ABORT_REQUESTED,
					  GKV_SC_ABORTED_SQ_DELETION, GKV_SC_TRANSIENT,
					  GKV_SC_ABORT_LIMIT, GKV_SC_AER_LIMIT };
	static const uint16_t final[] = { GKV_SC_INVALID_OPCODE, GKV_SC_INVALID_FIELD,
					  GKV_SC_INVALID_NS, GKV_SC_OPERATION_DENIED,
					  GKV_SC_INVALID_LOG_PAGE, GKV_SC_FEAT_NOT_SAVEABLE,
					  GKV_SC_FEAT_NOT_CHANGEABLE, GKV_SC_FEAT_NOT_NS,
					  GKV_SC_IOCS_COMBINATION, GKV_SC_INVALID_IOCS };

	(void)state;
	for (size_t i = 0; i < sizeof(retry) / sizeof(retry[0]); i++)
		assert_int_equal(kvb_admin_dnr(retry[i]), retry[i]);
	for (size_t i = 0; i < sizeof(final) / sizeof(final[0]); i++)
		assert_int_equal(kvb_admin_dnr(final[i]), final[i] | GKV_DNR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_opcodes),
		TEST(test_features),
		TEST(test_feature_values),
		TEST(test_vwc),
		TEST(test_ednek),
		TEST(test_aer),
		TEST(test_aer_pending),
		TEST(test_abort),
		TEST(test_dnr),
	};

	return cmocka_run_group_tests_name("admin", tests, rig_start, rig_end);
}
