/* SPDX-License-Identifier: MIT */
/*
 * Every Identify structure by byte offset, and every refusal.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "admin_rig.h"

static void test_id_ctrl(void **state)
{
	(void)state;
	assert_int_equal(identify(&user, 0, 0x01, 0), OK);
	assert_memory_equal(data + 4, "a5a5a5a5a5a5a5a5a5a5", 20);
	assert_memory_equal(data + 24, "gkv kvbridged                           ", 40);
	assert_int_equal(data[76], 0);			/* CMIC */
	assert_int_equal(data[77], 0);			/* MDTS: no limit */
	assert_int_equal(u16(78), KVB_CNTLID);
	assert_int_equal(u32(80), 0x00020000);		/* VER */
	assert_int_equal(u32(92), 0);			/* OAES */
	assert_int_equal(data[111], 1);			/* CNTRLTYPE: I/O */
	assert_int_equal(u16(256), 0);			/* OACS */
	assert_int_equal(data[258], 3);			/* ACL */
	assert_int_equal(data[259], 3);			/* AERL */
	assert_int_equal(data[261] & 0x2, 0x2);		/* LPA: effects log */
	assert_int_equal(data[261] & 0x4, 0x4);		/* LPA: offsets */
	assert_int_equal(data[262], 63);		/* ELPE */
	assert_int_equal(data[512], 0x66);		/* SQES */
	assert_int_equal(data[513], 0x44);		/* CQES */
	assert_int_equal(u16(514), 4096);		/* MAXCMD */
	assert_int_equal(u32(516), 5);			/* NN */
	assert_int_equal(u16(520), 0x10);		/* ONCS: save and select */
	assert_int_equal(data[525], 0x4);		/* VWC: none */
	assert_int_equal(u32(536), 0x00050001);		/* SGLS */
	assert_string_equal((char *)data + 768, "nqn.2014-08.org.nvmexpress:uuid:"
						"a5a5a5a5-a5a5-a5a5-a5a5-a5a5a5a5a5a5");
	fake_info.volatile_cache = true;
	assert_int_equal(identify(&user, 0, 0x01, 0), OK);
	assert_int_equal(data[525], 0x5);
}

static void test_id_ns(void **state)
{
	(void)state;
	/* The dummy that keeps foreign clients from taking it for inactive. */
	assert_int_equal(identify(&user, 1, 0x00, 0), OK);
	assert_int_equal(u64(0), (1 << 30) / 512);
	assert_int_equal(u64(8), u64(0));
	fake_info.capacity = 0;
	assert_int_equal(identify(&user, 1, 0x00, 0), OK);
	assert_int_equal(u64(8), 1);
	zero(24, 4096);
}

static void test_id_ns_kv(void **state)
{
	(void)state;
	assert_int_equal(identify(&user, 3, 0x05, 1), OK);
	assert_int_equal(u64(0), 1 << 30);		/* NSZE, bytes */
	zero(8, 16);
	assert_int_equal(u64(16), 4096);		/* NUSE */
	zero(24, 32);					/* NSFEAT, NKVF (0's based) to KVFC */
	assert_int_equal(u32(32), 4096);		/* NOVG */
	zero(36, 43);
	assert_int_equal(data[43], 1);			/* NSATTR: this peer only reads */
	zero(44, 72);
	assert_int_equal(u16(72), 16);			/* KVF 0: key */
	zero(74, 76);
	assert_int_equal(u32(76), 64 << 20);		/* value: the store's limit is lower */
	assert_int_equal(u32(80), 0);			/* keys: no maximum */
	zero(84, 4096);
	assert_int_equal(identify(&root, 3, 0x05, 1), OK);
	assert_int_equal(data[43], 0);
	/* NUSE never exceeds NSZE. */
	fake_info.used = UINT64_C(1) << 40;
	assert_int_equal(identify(&root, 3, 0x05, 1), OK);
	assert_int_equal(u64(16), 1 << 30);
	fake_info.read_only = true;
	assert_int_equal(identify(&root, 3, 0x05, 1), OK);
	assert_int_equal(data[43], 1);
}

static void test_id_lists(void **state)
{
	static const uint8_t descs[] = { 3, 16, 0, 0, 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66,
					 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff,
					 4, 1, 0, 0, 1, 0, 0, 0, 0 };

	(void)state;
	for (int i = 0; i < 2; i++) {	/* CNS 02h, and 07h with CSI 1: the same list */
		uint32_t cns = i ? 0x07 : 0x02;
		uint8_t csi = i ? 1 : 0;

		assert_int_equal(identify(&root, 0, cns, csi), OK);
		assert_int_equal(u32(0), 1);
		assert_int_equal(u32(4), 3);
		assert_int_equal(u32(8), 5);
		zero(12, 4096);
		assert_int_equal(identify(&root, 3, cns, csi), OK);
		assert_int_equal(u32(0), 5);
		zero(4, 4096);
		/* What a peer may not open is not there. */
		assert_int_equal(identify(&user, 0, cns, csi), OK);
		assert_int_equal(u32(0), 1);
		assert_int_equal(u32(4), 3);
		zero(8, 4096);
		assert_int_equal(identify(&root, 5, cns, csi), OK);
		zero(0, 4096);
		assert_int_equal(identify(&root, ALL, cns, csi), BAD_NS);
		assert_int_equal(identify(&root, ALL - 1, cns, csi), BAD_NS);
		assert_int_equal(identify(&root, ALL - 2, cns, csi), OK);
	}
	assert_int_equal(identify(&root, 3, 0x03, 0), OK);
	assert_memory_equal(data, descs, sizeof(descs));
	zero(sizeof(descs), 4096);
}

static void test_id_others(void **state)
{
	(void)state;
	assert_int_equal(identify(&user, 0, 0x06, 1), OK);
	zero(0, 4096);
	assert_int_equal(identify(&user, 3, 0x08, 0), OK);
	zero(0, 8);
	assert_int_equal(data[8], 1);			/* NSATTR */
	assert_int_equal(data[14], 1);			/* NSTAT: ready */
	zero(15, 4096);
	fake_info.ready = false;
	assert_int_equal(identify(&user, 1, 0x08, 0), OK);
	zero(0, 4096);
	assert_int_equal(identify(&user, 0, 0xffff001c, 0), OK);
	assert_int_equal(u64(0), 0x2);			/* vector 0: KV alone */
	zero(8, 4096);
	assert_int_equal(identify(&user, 0, KVB_CNTLID << 16 | 0x1c, 0), OK);
	assert_int_equal(identify(&user, 0, 0x0002001c, 0), BAD_FIELD);
}

static void test_id_refused(void **state)
{
	static const uint8_t per_ns[][2] = { { 0x00, 0 }, { 0x03, 0 }, { 0x05, 1 }, { 0x08, 0 } };
	struct gkv_admin_sqe sqe;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		uint8_t cns = per_ns[i][0], csi = per_ns[i][1];

		assert_int_equal(identify(&root, 0, cns, csi), BAD_NS);
		assert_int_equal(identify(&root, 6, cns, csi), BAD_NS);
		assert_int_equal(identify(&root, 2, cns, csi), BAD_FIELD);	/* inactive */
		assert_int_equal(identify(&root, ALL, cns, csi), BAD_FIELD);
		assert_int_equal(identify(&user, 5, cns, csi), BAD_FIELD);	/* not for them */
		assert_int_equal(identify(&root, 5, cns, csi), OK);
	}
	for (int csi = 0; csi < 256; csi++) {
		if (csi == 1)
			continue;
		assert_int_equal(identify(&root, 1, 0x05, (uint8_t)csi), BAD_IOCS);
		assert_int_equal(identify(&root, 0, 0x06, (uint8_t)csi), BAD_IOCS);
		assert_int_equal(identify(&root, 0, 0x07, (uint8_t)csi), BAD_IOCS);
	}
	for (unsigned int cns = 0; cns < 256; cns++)
		if (cns > 0x08 && cns != 0x1c)
			assert_int_equal(identify(&root, 1, cns, 1), BAD_FIELD);
	assert_int_equal(identify(&root, 1, 0x04, 0), BAD_FIELD);
	assert_int_equal(identify(&root, 1, 0x01, 0), BAD_FIELD);	/* takes no NSID */
	assert_int_equal(identify(&root, 0, 0x0101, 0), BAD_FIELD);	/* reserved */
	assert_int_equal(identify(&root, 0, 0x10001, 0), BAD_FIELD);	/* CNTID not used */
	assert_int_equal(identify(&root, 0, 0x01, 1), BAD_FIELD);	/* CSI not used */
	/* Each reserved dword, and the flags. */
	for (size_t off = 0; off < 64; off += 4) {
		static const uint64_t used = 1 << 0 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 |
					     1 << 8 | 1 << 9 | 1 << 10 | 1 << 11;

		if (used >> off / 4 & 1)
			continue;
		memset(&sqe, 0, sizeof(sqe));
		sqe.opcode = GKV_ADM_IDENTIFY;
		sqe.cdw10 = htole32(1);
		((uint8_t *)&sqe)[off + 3] = 0x80;
		assert_int_equal(exec(&root, &sqe), BAD_FIELD);
	}
	memset(&sqe, 0, sizeof(sqe));
	sqe.opcode = GKV_ADM_IDENTIFY;
	sqe.cdw10 = htole32(1);
	sqe.flags = 1;				/* fused */
	assert_int_equal(exec(&root, &sqe), BAD_FIELD);
	sqe.flags = 0;
	data_len = 4095;			/* no room for the structure */
	assert_int_equal(kvb_admin_exec(&ctrl, &root, &sqe, NULL, 0, &cqe, data, &data_len),
			 KVB_ADMIN_DONE);
	assert_int_equal(le16toh(cqe.status) >> 1, BAD_FIELD);
	assert_int_equal(data_len, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_id_ctrl),
		TEST(test_id_ns),
		TEST(test_id_ns_kv),
		TEST(test_id_lists),
		TEST(test_id_others),
		TEST(test_id_refused),
	};

	return cmocka_run_group_tests_name("identify", tests, rig_start, rig_end);
}
