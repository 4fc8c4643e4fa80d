/* SPDX-License-Identifier: MIT */
/* Memory of GPUs and queue pairs in it, with the module and the daemon played by the test. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fakedaemon.h"
#include "fakedrv.h"
#include "vram_rig.h"

#define MODES 16u

static struct gkv_mem *host(size_t len)
{
	struct gkv_mem *mem;

	assert_int_equal(gkv_mem_alloc(g, len, &mem), 0);
	return mem;
}

static struct gkv_cmd store_from(struct gkv_mem *mem, uint64_t user_data)
{
	struct gkv_cmd c = { .opcode = GKV_STORE, .nsid = 1, .key_len = 1, .key = "k",
			     .buf = (char *)gkv_mem_addr(mem) + 100, .len = 3000,
			     .user_data = user_data };

	return c;
}

/* ---- Memory ---- */

static void test_alloc(void **state)
{
	struct gkv_place p = { .size = sizeof(p) };
	struct gkv_mem *mem = vram(5000), *h = host(4096);

	(void)state;
	assert_int_equal(gkv_mem_len(mem), 8192);
	assert_int_equal(gkv_mem_iova(mem), (uintptr_t)gkv_mem_addr(mem));
	/* The foreign one comes first, and is not asked. */
	assert_int_equal(fakedrv.providers[0].tried, 0);
	assert_int_equal(gkv_mem_place(mem, &p), 0);
	assert_place(&p, GKV_PLACE_VRAM, 5);
	assert_int_equal(gkv_mem_place(h, &p), 0);
	assert_place(&p, GKV_PLACE_HOST, 0);
	assert_true(fakedrv_is(gkv_mem_fd(mem)));
	memset(gkv_mem_addr(mem), 0x77, 8192);
	assert_int_equal(fake_mem(&fake, gkv_mem_iova(mem), 8192)[8191], 0x77);
	fakedrv_revoke(gkv_mem_fd(mem));
	assert_int_equal(gkv_mem_place(mem, &p), 0);
	assert_place(&p, GKV_PLACE_GONE, 0);
	assert_int_equal(gkv_mem_free(mem), 0);
	assert_int_equal(gkv_mem_free(h), 0);
}

static void test_alloc_refused(void **state)
{
	struct fakedrv_provider *p = fakedrv.providers;
	struct gkv_mem *mem = (void *)1;
	unsigned int regions = fake_count(&fake, GKV_MSG_REGION_ADD);

	(void)state;
	assert_says(gkv_mem_alloc_vram(g, 9, 4096, &mem), -ENOENT, "no such provider");
	assert_null(mem);
	assert_says(gkv_mem_alloc_vram(g, 3, 4096, &mem), -EINVAL, "another driver");
	p[1].err = ENOMEM;
	p[1].why = GKVDRV_WHY_NOMEM;
	p[1].text = "provider 5 is full";
	assert_says(gkv_mem_alloc_vram(g, 5, 4096, &mem), -ENOMEM, "provider 5 is full");
	assert_says(gkv_mem_alloc_vram(g, 0, 4096, &mem), -ENOMEM, "provider 5 is full");
	/* The next one has room. */
	fakedrv_provider(2, 8, GKVDRV_CARVEOUT);
	assert_int_equal(gkv_mem_alloc_vram(g, 0, 4096, &mem), 0);
	assert_int_equal(p[2].tried, 1);
	assert_int_equal(gkv_mem_free(mem), 0);
	fakedrv_provider(1, 0, 0);
	fakedrv_provider(2, 0, 0);
	assert_says(gkv_mem_alloc_vram(g, 0, 4096, &mem), -ENODEV, "to allocate from");
	assert_says(gkv_mem_alloc_vram(g, 0, 0, &mem), -EINVAL, "0 bytes");
	assert_int_equal(gkv_mem_alloc_vram(g, 0, SIZE_MAX, &mem), -ENOMEM);
	assert_int_equal(gkv_mem_alloc_vram(g, 0, 4096, NULL), -EINVAL);
	assert_int_equal(fake_count(&fake, GKV_MSG_REGION_ADD), regions + 1);
	/* The daemon's refusal: a disk that cannot reach it. */
	fakedrv_provider(1, 5, GKVDRV_CARVEOUT);
	fake_refuse(&fake, GKV_MSG_REGION_ADD, EXDEV, "sda: no route");
	assert_says(gkv_mem_alloc_vram(g, 0, 4096, &mem), -EXDEV, "sda: no route");
	assert_null(mem);
}

static void test_import(void **state)
{
	const uint64_t iova = 0x7fff00000000;
	struct gkv_place p = { .size = sizeof(p) };
	struct gkv_mem *mem;
	int fd = memfd_create("dmabuf", 0);

	(void)state;
	/* Tried in turn: imports may come from foreign providers too. */
	fakedrv.providers[0].err = EREMOTEIO;
	fakedrv.providers[0].why = GKVDRV_WHY_ADDRESS;
	fakedrv.providers[0].text = "not in provider 3";
	assert_int_equal(gkv_mem_import(g, fd, 4096, 0, 0, iova, &mem), 0);
	assert_int_equal(fakedrv.providers[0].tried, 1);
	assert_int_equal(fakedrv.import.offset, 4096);
	assert_int_equal(fakedrv.import.len, 0);
	assert_int_equal(gkv_mem_iova(mem), iova);
	assert_int_equal(gkv_mem_len(mem), (1 << 20) - 4096);
	assert_int_equal(gkv_mem_place(mem, &p), 0);
	assert_place(&p, GKV_PLACE_VRAM, 5);
	/* Commands name it by the library's addresses, entries by the GPU's. */
	memset(gkv_mem_addr(mem), 0x33, 4096);
	assert_int_equal(fake_mem(&fake, iova, 4096)[4095], 0x33);
	assert_int_equal(gkv_mem_free(mem), 0);
	assert_int_equal(gkv_mem_import(g, fd, 0, 8192, 5, 0, &mem), 0);
	assert_int_equal(fakedrv.providers[0].tried, 1);
	assert_int_equal(gkv_mem_len(mem), 8192);
	assert_int_equal(gkv_mem_iova(mem), (uintptr_t)gkv_mem_addr(mem));
	close(fd);
}

/* Of several refusals the one that says most, wherever it comes in the row. */
static void test_import_refused(void **state)
{
	struct fakedrv_provider *p = fakedrv.providers;
	struct gkv_mem *mem;
	int fd = memfd_create("dmabuf", 0);

	(void)state;
	fakedrv_provider(2, 7, GKVDRV_FOREIGN);
	for (int i = 0; i < 3; i++) {
		p[i].err = EREMOTEIO;
		p[i].why = GKVDRV_WHY_ADDRESS;
		p[i].text = "elsewhere";
	}
	assert_says(gkv_mem_import(g, fd, 0, 0, 0, 0, &mem), -EREMOTEIO, "elsewhere");
	for (int i = 0; i < 3; i++) {
		int err = p[i].err;
		uint32_t why = p[i].why;

		p[i].err = EBUSY;
		p[i].why = GKVDRV_WHY_OVERLAP;
		p[i].text = "in another region";
		assert_says(gkv_mem_import(g, fd, 0, 0, 0, 0, &mem), -EBUSY, "in another region");
		p[i].err = err;
		p[i].why = why;
		p[i].text = "elsewhere";
	}
	p[1].why = GKVDRV_WHY_SYSTEM;
	p[1].text = "system memory";
	p[2].err = ENODEV;
	p[2].why = GKVDRV_WHY_EXPORTER;
	p[2].text = "does not attach";
	assert_says(gkv_mem_import(g, fd, 0, 0, 0, 0, &mem), -EREMOTEIO, "system memory");
	assert_null(mem);
	close(fd);
	p[0].tried = p[1].tried = 0;
	assert_says(gkv_mem_import(g, 9999, 0, 0, 0, 0, &mem), -EBADF, "dma-buf");
	assert_int_equal(p[1].tried, 0);
	assert_says(gkv_mem_import(g, 0, 0, 0, 0, 100, &mem), -EINVAL, "IOVA");
	memset(p, 0, sizeof(fakedrv.providers));
	assert_says(gkv_mem_import(g, 0, 0, 0, 0, 0, &mem), -ENODEV, "no provider");
	assert_says(gkv_mem_import(g, 0, 0, 0, 4, 0, &mem), -ENOENT, "no such provider");
}

static void test_register_region(void **state)
{
	struct gkv_place p = { .size = sizeof(p) };
	struct gkv_qp *qp = queue_of((struct gkv_qp_opts){ .mode = GKV_MODE_SQ });
	int fd = fakedrv_region(65536);
	struct gkv_mem *mem;

	(void)state;
	assert_int_equal(gkv_mem_register(g, fd, 4096, 8192, 0x10000, &mem), 0);
	assert_int_equal(gkv_mem_place(mem, &p), 0);
	assert_place(&p, GKV_PLACE_VRAM, 1);
	assert_says(gkv_mem_register(g, fd, 4096, 65536, 0x100000, &mem), -EINVAL,
		    "not within the region");
	assert_says(gkv_mem_register(g, fakedrv.qp.fd, 0, 4096, 0, &mem), -EINVAL,
		    "not a region");
	fakedrv_revoke(fd);
	assert_says(gkv_mem_register(g, fd, 0, 4096, 0x100000, &mem), -ENODEV, "revoked");
	assert_int_equal(gkv_qp_destroy(qp), 0);
}

/* ---- The device and the daemon ---- */

static void test_device(void **state)
{
	struct gkv_qp_opts o = { .size = sizeof(o), .mode = GKV_MODE_SQ };
	struct gkv_mem *mem;
	struct gkv_qp *qp;
	char path[80];

	(void)state;
	fakedrv.abi = 7;
	assert_says(gkv_mem_alloc_vram(g, 0, 4096, &mem), -EPROTO, "interface version 7");
	assert_non_null(strstr(gkv_error(), "built for 1"));
	fakedrv.abi = GKVDRV_ABI;
	fakedrv.caps = 0;
	assert_says(gkv_mem_alloc_vram(g, 0, 4096, &mem), -EOPNOTSUPP, "CONFIG_PCI_P2PDMA");
	assert_says(gkv_qp_create(g, &o, &qp), -EOPNOTSUPP, "CONFIG_PCI_P2PDMA");
	fakedrv.caps = GKVDRV_CAP_VRAM;
	assert_says(gkv_mem_import(g, 0, 0, 0, 0, 0, &mem), -EOPNOTSUPP, "dma-buf");
	fakedrv.caps |= GKVDRV_CAP_IMPORT;
	/* One that is something else. */
	snprintf(path, sizeof(path), "%s/other", fakedrv.dir);
	close(open(path, O_CREAT | O_RDWR, 0600));
	setenv("GKV_DEVICE", path, 1);
	assert_says(gkv_mem_alloc_vram(g, 0, 4096, &mem), -ENODEV, "not a device of gkvdrv");
	chmod(path, 0);
	if (!geteuid())
		assert_int_equal(seteuid(65534), 0);
	assert_says(gkv_mem_alloc_vram(g, 0, 4096, &mem), -EACCES, "group");
	if (!getuid())
		assert_int_equal(seteuid(0), 0);
	unlink(path);
	assert_says(gkv_mem_alloc_vram(g, 0, 4096, &mem), -ENODEV, "modprobe gkvdrv");
	assert_non_null(strstr(gkv_error(), path));
	assert_says(gkv_qp_create(g, &o, &qp), -ENODEV, "modprobe gkvdrv");
	assert_null(qp);
	/* Host memory does not need it. */
	assert_int_equal(gkv_mem_alloc(g, 4096, &mem), 0);
	o.mode = 0;
	assert_int_equal(gkv_qp_create(g, &o, &qp), 0);
	setenv("GKV_DEVICE", fakedrv.path, 1);
}

/* A daemon that does not offer it: refused here, without a look at the device. */
static void test_no_feature(void **state)
{
	struct gkv_mem *mem, *h = host(4096);
	int fd = fakedrv_region(4096);
	struct gkv_qp *qp;

	(void)state;
	gkv_close(g);
	fake_stop(&fake);
	fake.hello.features &= ~(uint64_t)GKV_FEATURE_VRAM;
	fake_start(&fake);
	fakedrv.opened = 0;
	assert_int_equal(gkv_connect(&g, fake.path, 0, 0), 0);
	(void)h;
	assert_says(gkv_mem_alloc_vram(g, 0, 4096, &mem), -EOPNOTSUPP, "kvbridged");
	assert_says(gkv_mem_import(g, 0, 0, 0, 0, 0, &mem), -EOPNOTSUPP, "kvbridged");
	assert_says(gkv_mem_register(g, fd, 0, 4096, 0, &mem), -EOPNOTSUPP, "kvbridged");
	for (uint32_t mode = 1; mode < MODES; mode++) {
		struct gkv_qp_opts o = { .size = sizeof(o), .mode = mode };

		assert_says(gkv_qp_create(g, &o, &qp), -EOPNOTSUPP, "kvbridged");
	}
	assert_int_equal(fakedrv.opened, 0);
	assert_int_equal(fake_count(&fake, GKV_MSG_QP_ADD), 0);
	close(fd);
}

/* ---- Queue pairs ---- */

/* Each mode: parts where they belong, and commands go through, around the ring twice. */
static void test_modes(void **state)
{
	static const uint32_t bits[] = { GKV_MODE_SQ, GKV_MODE_CQ, GKV_MODE_DB };
	struct gkv_mem *mem[2] = { host(65536), vram(65536) };

	(void)state;
	for (uint32_t mode = 0; mode < MODES; mode++) {
		struct gkv_qp *qp = queue_of((struct gkv_qp_opts){ .depth = 5, .mode = mode });
		struct gkv_mem *data = mem[!!(mode & GKV_MODE_DATA)];
		struct fake_qp *q = fake_qp(&fake, 1);
		struct gkv_place p = { .size = sizeof(p) };
		struct gkv_comp c[8];
		struct gkv_sqe sqe;

		assert_int_equal(q->mode, mode);
		assert_true(q->was_zero);
		for (uint32_t i = 0; i < 3; i++) {
			assert_int_equal(gkv_qp_place(qp, i, &p), 0);
			assert_place(&p, mode & bits[i] ? GKV_PLACE_VRAM : GKV_PLACE_HOST,
				     mode & bits[i] ? 5 : 0);
		}
		for (uint64_t i = 0; i < 12; i++) {
			struct gkv_cmd two[2] = { store_from(data, i), exist(i + 100) };

			assert_int_equal(gkv_submit(qp, two, 2), 2);
			assert_true(fake_fetch(&fake, 1, &sqe));
			assert_int_equal(sqe.opcode, GKV_STORE);
			assert_int_equal(sqe.nsid, 1);
			assert_int_equal(sqe.cdw10, 3000);
			fake_post(&fake, 1, sqe.cid, 0, (uint32_t)i, 0);
			assert_int_equal(gkv_poll(qp, c, 8), 1);
			assert_int_equal(c[0].user_data, i);
			assert_int_equal(c[0].result, i);
			assert_true(fake_fetch(&fake, 1, &sqe));
			assert_int_equal(sqe.opcode, GKV_EXIST);
			fake_post(&fake, 1, sqe.cid, GKV_SC_KEY_NOT_FOUND, 0, 0);
			assert_int_equal(gkv_wait(qp, c, 8, 5000 * MS), 1);
			assert_int_equal(c[0].user_data, i + 100);
			assert_int_equal(c[0].status, GKV_SC_KEY_NOT_FOUND);
			assert_int_equal(fake_cq_head(&fake, 1), (2 * i + 2) % 5);
		}
		assert_int_equal(gkv_qp_reset(qp), 0);
		submit(qp, exist(1));
		assert_int_equal(gkv_qp_destroy(qp), 0);
	}
}

/* The daemon asleep is woken from doorbells in VRAM too, and not where it polls. */
static void test_wakeup(void **state)
{
	(void)state;
	for (uint32_t flags = 0; flags <= GKV_QP_POLLED; flags += GKV_QP_POLLED) {
		struct gkv_qp *qp = queue_of((struct gkv_qp_opts){ .depth = 8, .mode = 7,
								   .flags = flags });

		fake_bells(&fake);
		__atomic_store_n(&fake.states[1].sleeping, 1, __ATOMIC_SEQ_CST);
		submit(qp, exist(1));
		assert_int_equal(fake_bells(&fake), flags ? 0 : 1);
		__atomic_store_n(&fake.states[1].sleeping, 0, __ATOMIC_SEQ_CST);
		submit(qp, exist(1));
		assert_int_equal(fake_bells(&fake), 0);
		assert_int_equal(gkv_qp_destroy(qp), 0);
	}
}

static void test_options(void **state)
{
	struct gkv_mem *mem = vram(65536), *h = host(65536);
	struct gkv_qp_opts o = { .size = sizeof(o), .depth = 64, .mode = 7 };
	struct gkv_place p = { .size = sizeof(p) };
	unsigned int adds;
	struct gkv_qp *qp;

	(void)state;
	/* Placed in a region; the offsets in its descriptor reach the daemon. */
	o.sq = (struct gkv_qp_part){ mem, 8192 };
	o.cq = (struct gkv_qp_part){ mem, 16384 };
	o.db = (struct gkv_qp_part){ mem, 4096 + 40 };
	assert_int_equal(gkv_qp_create(g, &o, &qp), 0);
	assert_int_equal(fakedrv.qp.parts[0].offset, 8192);
	assert_int_equal(fakedrv.qp.parts[1].offset, 16384);
	assert_int_equal(fakedrv.qp.parts[2].offset, 4096 + 40);
	assert_int_equal(fakedrv.qp.parts[0].region, gkv_mem_fd(mem));
	assert_int_equal(fake_qp(&fake, 1)->offset[3] % 4096, 40);
	assert_int_equal(gkv_mem_free(mem), 0);
	submit(qp, exist(1));
	assert_int_equal(gkv_qp_place(qp, 2, &p), 0);
	assert_place(&p, GKV_PLACE_VRAM, 5);
	assert_int_equal(gkv_qp_place(qp, 3, &p), -EINVAL);
	p.size = 3;
	assert_says(gkv_qp_place(qp, 2, &p), -EINVAL, "size");
	assert_int_equal(gkv_qp_destroy(qp), 0);

	adds = fake_count(&fake, GKV_MSG_QP_ADD);
	mem = vram(65536);
	o = (struct gkv_qp_opts){ .size = sizeof(o), .depth = 64, .mode = 6,
				  .sq = { mem, 0 } };
	assert_says(gkv_qp_create(g, &o, &qp), -EINVAL, "SQ: memory mode 0x6");
	o.mode = 1;
	o.sq.offset = 65536 - 4096 + 64;
	assert_says(gkv_qp_create(g, &o, &qp), -EINVAL, "not within");
	o.sq = (struct gkv_qp_part){ h, 0 };
	assert_says(gkv_qp_create(g, &o, &qp), -EINVAL, "host memory");
	o.sq = (struct gkv_qp_part){ NULL, 4096 };
	assert_says(gkv_qp_create(g, &o, &qp), -EINVAL, "no memory");
	o.sq.offset = 0;
	o.mode = 16;
	assert_says(gkv_qp_create(g, &o, &qp), -EINVAL, "memory mode 0x10");
	o.mode = 1;
	o.provider = 3;
	assert_says(gkv_qp_create(g, &o, &qp), -EINVAL, "another driver");
	o.provider = 4;
	assert_says(gkv_qp_create(g, &o, &qp), -ENOENT, "no such provider");
	fakedrv.providers[1].err = ENOMEM;
	fakedrv.providers[1].why = GKVDRV_WHY_NOMEM;
	fakedrv.providers[1].text = "full";
	o.provider = 0;
	assert_says(gkv_qp_create(g, &o, &qp), -ENOMEM, "full");
	fakedrv_provider(2, 8, GKVDRV_CARVEOUT);
	assert_int_equal(fake_count(&fake, GKV_MSG_QP_ADD), adds);
	assert_int_equal(gkv_qp_create(g, &o, &qp), 0);
	p.size = sizeof(p);
	assert_int_equal(gkv_qp_place(qp, 0, &p), 0);
	assert_place(&p, GKV_PLACE_VRAM, 8);
	assert_int_equal(gkv_qp_destroy(qp), 0);

	/* A program built before there were modes; and one after the library. */
	struct { struct gkv_qp_opts o; uint64_t more; } big = { .o = { .size = sizeof(big) } };

	o = (struct gkv_qp_opts){ .size = offsetof(struct gkv_qp_opts, mode), .depth = 16,
				  .mode = 0xffff, .provider = 9, .sq = { mem, 7 } };
	assert_int_equal(gkv_qp_create(g, &o, &qp), 0);
	assert_int_equal(fake_qp(&fake, 1)->mode, 0);
	assert_int_equal(gkv_qp_destroy(qp), 0);
	assert_int_equal(gkv_qp_create(g, &big.o, &qp), 0);
	assert_int_equal(gkv_qp_destroy(qp), 0);
	big.more = 1;
	assert_says(gkv_qp_create(g, &big.o, &qp), -EINVAL, "does not know");
}

/* Data has to be where the mode says, in each way of naming it; nothing is submitted else. */
static void test_data_mode(void **state)
{
	struct gkv_mem *mem[2] = { host(65536), vram(65536) };

	(void)state;
	for (uint32_t flags = 0; flags <= GKV_QP_PRP; flags += GKV_QP_PRP) {
		for (uint32_t in_vram = 0; in_vram < 2; in_vram++) {
			struct gkv_qp *qp = queue_of((struct gkv_qp_opts){
				.depth = 8, .max_segs = 2, .flags = flags,
				.mode = in_vram ? GKV_MODE_DATA : 0 });
			const char *says = in_vram ? "host memory" : "VRAM";
			struct gkv_mem *good = mem[in_vram], *bad = mem[!in_vram];
			struct gkv_seg segs[2] = { { gkv_mem_addr(good), 4096 },
						   { gkv_mem_addr(bad), 4096 } };
			struct gkv_cmd c[2] = { store_from(good, 1), store_from(bad, 2) };
			struct gkv_sqe sqe;

			assert_says(gkv_submit(qp, &c[1], 1), -EINVAL, says);
			assert_non_null(strstr(gkv_error(), in_vram ? "mode 0x8" : "mode 0x0"));
			assert_says(gkv_submit(qp, c, 2), -EINVAL, says);
			c[1].opcode = GKV_LIST;
			c[1].key_len = 0;
			assert_says(gkv_submit(qp, &c[1], 1), -EINVAL, says);
			c[1] = store_from(good, 3);
			c[1].nsegs = 2;
			c[1].segs = segs;
			c[1].len = 8192;
			assert_says(gkv_submit(qp, &c[1], 1), -EINVAL, says);
			assert_int_equal(gkv_qp_outstanding(qp), 0);
			assert_false(fake_fetch(&fake, 1, &sqe));
			segs[1].addr = (char *)gkv_mem_addr(good) + 8192;
			assert_int_equal(gkv_submit(qp, &c[1], 1), 1);
			assert_int_equal(gkv_submit(qp, c, 1), 1);
			/* No memory at all is another matter. */
			c[0].buf = segs;
			assert_says(gkv_submit(qp, c, 1), -EINVAL, "does not lie inside");
			assert_int_equal(gkv_qp_destroy(qp), 0);
		}
	}
}

/* ---- Restart and revocation ---- */

static void restart(void)
{
	uint64_t before = gkv_reconnects(g);

	fake_stop(&fake);
	fake_start(&fake);
	for (int i = 0; gkv_reconnects(g) == before && i < 5000; i++)
		usleep(1000);
	assert_int_equal(gkv_reconnects(g), before + 1);
}

/* The successor gets the same memory at the same places, and the command's answer arrives. */
static void test_restart(void **state)
{
	struct gkv_mem *mem = vram(65536);

	(void)state;
	for (uint32_t mode = 0; mode < MODES; mode++)
		if (mode % 3 == 0 || mode == 7) {
			struct gkv_qp *qp = queue_of((struct gkv_qp_opts){ .depth = 8, .mode = mode });
			struct fake_qp *q = &fake.qps[1];
			unsigned int resumes = q->resumes;
			uint16_t cid = submit(qp, exist(mode));
			struct gkv_comp c;

			restart();
			assert_true(fake_live(&fake, 1));
			assert_int_equal(q->resumes, resumes + 1);
			fake_post(&fake, 1, cid, 0, 0, 0);
			assert_int_equal(gkv_wait(qp, &c, 1, 5000 * MS), 1);
			assert_int_equal(c.user_data, mode);
			assert_int_equal(c.flags, 0);
			assert_int_equal(gkv_qp_destroy(qp), 0);
		}
	assert_non_null(fake_mem(&fake, gkv_mem_iova(mem), 65536));
}

/* Not taken up again: lost, wiped in VRAM too, and anew. */
static void test_lost(void **state)
{
	struct gkv_qp *qp = queue_of((struct gkv_qp_opts){ .depth = 8, .mode = 7 });
	struct gkv_comp c[8];

	(void)state;
	fake_post(&fake, 1, submit(qp, exist(1)), 0, 0, 0);
	submit(qp, exist(2));
	fake_refuse(&fake, GKV_MSG_QP_ADD, EINVAL, "no");
	fake.refuse[GKV_MSG_QP_ADD].times = 1;
	restart();
	assert_int_equal(gkv_poll(qp, c, 8), 1);
	assert_int_equal(c[0].user_data, 1);
	assert_int_equal(c[0].flags, 0);
	assert_int_equal(gkv_poll(qp, c, 8), 1);
	assert_int_equal(c[0].user_data, 2);
	assert_int_equal(c[0].flags, GKV_C_LOST);
	for (int i = 0; !gkv_qp_room(qp) && i < 5000; i++)
		usleep(1000);
	assert_int_equal(gkv_qp_room(qp), 7);
	assert_true(fake_qp(&fake, 1)->was_zero);
	fake_post(&fake, 1, submit(qp, exist(3)), 0, 0, 0);
	assert_int_equal(gkv_poll(qp, c, 8), 1);
	assert_int_equal(c[0].user_data, 3);
}

/* A successor that wants another stride: doorbells in VRAM cannot follow, others can. */
static void test_stride(void **state)
{
	struct gkv_qp *qp[2];
	struct gkv_comp c;

	(void)state;
	for (int i = 0; i < 2; i++)
		qp[i] = queue_of((struct gkv_qp_opts){ .depth = 8, .mode = i ? 3 : 7 });
	fake_stop(&fake);
	fake.hello.dstrd = fake.hello.dstrd ? 0 : 1;
	fake_start(&fake);
	for (int i = 0; !gkv_reconnects(g) && i < 5000; i++)
		usleep(1000);
	for (int i = 0; i < 5000 && !gkv_qp_room(qp[1]); i++) {
		assert_int_equal(gkv_poll(qp[0], &c, 1), 0);
		assert_int_equal(gkv_poll(qp[1], &c, 1), 0);
		usleep(1000);
	}
	fake_post(&fake, 2, submit(qp[1], exist(1)), 0, 0, 0);
	assert_int_equal(gkv_wait(qp[1], &c, 1, 5000 * MS), 1);
	assert_int_equal(c.user_data, 1);
	assert_says(gkv_submit(qp[0], (struct gkv_cmd[]){ exist(2) }, 1), -ENOTCONN, "lost");
	assert_int_equal(gkv_qp_destroy(qp[0]), 0);
}

/*
 * Memory goes, and the daemon says so: what follows touches it no more, which would be
 * SIGBUS here.
 */
static void test_revoked(void **state)
{
	struct gkv_mem *mem = vram(65536);

	(void)state;
	for (uint32_t mode = 0; mode < MODES; mode++) {
		struct gkv_qp *qp = queue_of((struct gkv_qp_opts){ .depth = 8, .mode = mode });
		struct gkv_place p = { .size = sizeof(p) };
		struct gkv_comp c[8];
		uint16_t cid;

		submit(qp, exist(1));
		cid = submit(qp, exist(2));
		fake_post(&fake, 1, cid, 0, 0, 0);
		fake_stop_qp(&fake, 1, GKV_STOPPED_MEMORY);
		fakedrv_revoke_all_qps();
		/* The answer in a CQ that is gone is gone; in host memory it is read. */
		assert_int_equal(gkv_wait(qp, c, 8, 60000 * MS), mode & GKV_MODE_CQ ? 2 : 1);
		if (mode & GKV_MODE_CQ) {
			assert_int_equal(c[0].flags, GKV_C_LOST | GKV_C_STOPPED);
			assert_int_equal(c[1].flags, GKV_C_LOST | GKV_C_STOPPED);
		} else {
			assert_int_equal(c[0].flags, 0);
			assert_int_equal(gkv_wait(qp, c, 8, 60000 * MS), 1);
			assert_int_equal(c[0].flags, GKV_C_LOST | GKV_C_STOPPED);
		}
		assert_int_equal(gkv_poll(qp, c, 8), 0);
		assert_int_equal(gkv_submit(qp, (struct gkv_cmd[]){ exist(3) }, 1), -ENODEV);
		assert_int_equal(gkv_qp_reset(qp), -ENODEV);
		if (mode & GKV_MODE_SQ) {
			assert_int_equal(gkv_qp_place(qp, GKV_PART_SQ, &p), 0);
			assert_int_equal(p.where, GKV_PLACE_GONE);
		}
		assert_int_equal(gkv_qp_destroy(qp), 0);
	}
	assert_int_equal(gkv_mem_free(mem), 0);
}

/* Memory goes with the daemon: its successor cannot take the queue pair. */
static void test_revoked_away(void **state)
{
	(void)state;
	for (uint32_t mode = 1; mode < 8; mode++) {
		struct gkv_qp *qp = queue_of((struct gkv_qp_opts){ .depth = 8, .mode = mode });
		struct gkv_comp c[8];

		submit(qp, exist(1));
		fake_refuse(&fake, GKV_MSG_QP_ADD, ENODEV, "gone");
		fake.refuse[GKV_MSG_QP_ADD].times = 1;
		fake_stop(&fake);
		fakedrv_revoke_all_qps();
		fake_start(&fake);
		for (int i = 0; gkv_reconnects(g) < mode && i < 5000; i++)
			usleep(1000);
		assert_int_equal(gkv_poll(qp, c, 8), 1);
		assert_int_equal(c[0].flags, GKV_C_LOST);
		assert_int_equal(gkv_qp_stopped(qp), GKV_STOPPED_MEMORY);
		assert_int_equal(gkv_poll(qp, c, 8), 0);
		assert_int_equal(gkv_wait(qp, c, 8, 100 * MS), 0);
		assert_says(gkv_submit(qp, (struct gkv_cmd[]){ exist(3) }, 1), -ENOTCONN, "lost");
		assert_int_equal(gkv_qp_reset(qp), -ENODEV);
		assert_int_equal(gkv_qp_destroy(qp), 0);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup_vram, teardown_vram)
	const struct CMUnitTest tests[] = {
		T(test_alloc), T(test_alloc_refused), T(test_import), T(test_import_refused),
		T(test_register_region), T(test_device), T(test_no_feature), T(test_modes),
		T(test_wakeup), T(test_options), T(test_data_mode), T(test_restart), T(test_lost), T(test_stride),
		T(test_revoked), T(test_revoked_away),
	};

	return cmocka_run_group_tests_name("lib_vram", tests, NULL, NULL);
}
