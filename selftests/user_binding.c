// SPDX-License-Identifier: MIT
/*
 * A memory mode binds the client, too. libgkv keeps to it by itself; this client does not, and
 * kvbridged has to answer: a data pointer into memory that the mode does not allow ends with 12h,
 * in the CQ that the mode says; a queue pair whose parts lie elsewhere than its mode says is not
 * made.
 */
#include <endian.h>

#include "gkvtest.h"
#include "hostcheck.h"
#include "rawclient.h"
#include "rig.h"

#define DEPTH	16u
#define RINGS	(64 * 1024ul)		/* of the region: SQ, CQ, doorbells; then data */
#define CQ_AT	4096u
#define DB_AT	(8192u + 40)
#define LEN	(1 * MIB)
#define VALUE	8192u

#define IN_VRAM	0x100000000ull		/* IOVAs of the two kinds of data */
#define IN_HOST	0x200000000ull
#define ELSE	(GKV_SC_INVALID_CMB | GKV_DNR)

static const char * const part_names[GKVDRV_PARTS] = { "SQ", "CQ", "doorbells" };
static struct rig rig;
static int gkv, provider;

/* ---- A session with data in both places ---- */

struct both {
	struct raw r;
	int region;		/* rings, then data */
	uint8_t *vram;		/* the region, mapped */
	uint64_t bar_offset;
	uint32_t mode;
	struct gkvdrv_qp made;
	struct raw_part parts[GKVDRV_PARTS];
	struct raw_qp qp;
	unsigned int done;	/* completions so far */
};

static bool unmade(const char *what, int rc, const char *text)
{
	tap_ok(false, "%s", what);
	tap_diag("%d: %s", rc, text);
	return false;
}

/* A queue pair of the module with its parts in the region, where @mode has them in VRAM. */
static bool make_parts(struct both *b)
{
	static const uint64_t at[GKVDRV_PARTS] = { 0, CQ_AT, DB_AT };

	for (unsigned int i = 0; i < GKVDRV_PARTS; i++)
		b->parts[i] = (struct raw_part) { .fd = -1 };
	b->made.fd = -1;
	if (!(b->mode & ~GKV_MODE_DATA))
		return true;
	qp_init(&b->made, DEPTH, b->mode);
	b->made.dstrd = le16toh(b->r.limits.dstrd);
	for (unsigned int i = 0; i < GKVDRV_PARTS; i++) {
		if (!(b->mode >> i & 1))
			continue;
		b->made.parts[i].region = b->region;
		b->made.parts[i].offset = at[i];
	}
	if (gkv_call(gkv, GKVDRV_QP_CREATE, &b->made))
		return false;
	for (unsigned int i = 0; i < GKVDRV_PARTS; i++) {
		char *page;

		if (!(b->mode >> i & 1))
			continue;
		page = map_shared(b->made.fd, b->made.parts[i].map_offset, 4096);
		if (page == MAP_FAILED)
			return false;
		b->parts[i].fd = b->made.fd;
		b->parts[i].offset = b->made.parts[i].map_offset + at[i] % 4096;
		b->parts[i].at = page + at[i] % 4096;
	}
	return true;
}

static bool begin(struct both *b, uint32_t mode)
{
	struct gkvdrv_report where;
	int rc;

	memset(b, 0, sizeof(*b));
	b->mode = mode;
	b->region = region_alloc(gkv, provider, LEN);
	b->vram = map_shared(b->region, 0, LEN);
	if (b->region < 0 || b->vram == MAP_FAILED || report(b->region, 0, &where))
		return unmade("a region", b->region, why.text);
	b->bar_offset = where.bar_offset;
	rc = raw_open_with(&b->r, rig.socket, GKV_FEATURE_VRAM);
	if (!rc)
		rc = raw_ns_open(&b->r, 1, 0);
	if (!rc)
		rc = raw_ns_open(&b->r, 2, 0);
	if (!rc)
		rc = raw_data(&b->r, IN_HOST);
	if (!rc)
		rc = raw_region(&b->r, 2, IN_VRAM, LEN, b->region);
	if (rc)
		return unmade("a session with data in both places", rc, b->r.text);
	if (!make_parts(b))
		return unmade("a queue pair of the module", -1, why.text);
	rc = raw_qp_place(&b->r, &b->qp, 1, DEPTH, mode, b->parts);
	return rc ? unmade("a queue pair whose parts are where its mode says", rc, b->r.text) : true;
}

static void end(struct both *b)
{
	for (unsigned int i = 0; i < GKVDRV_PARTS; i++)
		if (b->parts[i].at)
			munmap((void *)((uintptr_t)b->parts[i].at & -4096ul), 4096);
	raw_close(&b->r);
	raw_qp_free(&b->qp);
	if (b->made.fd >= 0)
		close(b->made.fd);
	munmap(b->vram, LEN);
	close(b->region);
}

/* ---- Completions, seen without the queue pair's own mapping ---- */

/* What lies in the CQ's slot @n by the descriptor of the memfd, and by the region's mapping. */
static struct gkv_cqe in_memfd(const struct both *b, unsigned int n)
{
	off_t at = (const uint8_t *)b->qp.rec - b->qp.base - 4096 + n * sizeof(struct gkv_cqe);
	struct gkv_cqe e;

	if (pread(b->qp.fd, &e, sizeof(e), at) != sizeof(e))
		memset(&e, 0xee, sizeof(e));
	return e;
}

static struct gkv_cqe in_region(const struct both *b, unsigned int n)
{
	struct gkv_cqe e;
	volatile uint64_t *at = (volatile uint64_t *)(b->vram + CQ_AT + n * sizeof(e));
	uint64_t words[2] = { at[0], at[1] };

	memcpy(&e, words, sizeof(e));
	return e;
}

/* Runs a command: its status. The completion must be in the one place, and nothing in the other. */
static uint16_t run(struct both *b, struct gkv_sqe *sqe, uint32_t *dw0)
{
	static const struct gkv_cqe none;
	unsigned int slot = b->done++ % DEPTH;
	bool vram = b->mode & GKV_MODE_CQ;
	uint16_t status = raw_exec(&b->r, &b->qp, sqe, dw0);
	struct gkv_cqe here = vram ? in_region(b, slot) : in_memfd(b, slot);
	struct gkv_cqe there = vram ? in_memfd(b, slot) : in_region(b, slot);
	const uint8_t *byte = (const uint8_t *)&here;
	char hex[2 * sizeof(here) + 1];

	if (here.cid != sqe->cid || le16toh(here.status) >> 1 != status) {
		tap_diag("completion %u is not in the CQ in %s", slot, vram ? "VRAM" : "host memory");
		return 0xfffe;
	}
	if (memcmp(&there, &none, sizeof(none))) {
		tap_diag("something is where no CQ is, in %s", vram ? "host memory" : "VRAM");
		return 0xfffd;
	}
	if (!vram)
		return status;
	for (unsigned int i = 0; i < sizeof(here); i++)
		sprintf(hex + 2 * i, "%02x", byte[i]);
	/* What the guest believes is not enough. */
	if (gkv_host_ask("vram-bytes %#llx %s",
			 (unsigned long long)(b->bar_offset + CQ_AT + slot * sizeof(here)), hex))
		return 0xfffc;
	return status;
}

/* ---- Data pointers ---- */

/* Address of @offset in the data of the one kind. */
static uint64_t iova(bool vram, uint64_t offset)
{
	return vram ? IN_VRAM + RINGS + offset : IN_HOST + offset;
}

static uint8_t *address(struct both *b, bool vram, uint64_t offset)
{
	return vram ? b->vram + RINGS + offset : b->r.data + offset;
}

enum how { SGL, PRP, HOW_MANY };

/* A command on @len bytes at @at, of which those from the second page on are at @rest. */
static void point(struct both *b, struct gkv_sqe *sqe, uint8_t opcode, uint32_t nsid, enum how how,
		  uint64_t at, uint64_t rest, uint32_t len)
{
	raw_sqe(&b->r, sqe, opcode, nsid, opcode == GKV_OP_LIST ? "" : "key",
		opcode == GKV_OP_LIST ? 0 : 3, len);
	sqe->dptr.sgl.addr = htole64(at);
	if (how == PRP) {
		sqe->flags = 0;
		sqe->dptr.prp.prp1 = htole64(at);
		sqe->dptr.prp.prp2 = htole64(len > 4096 ? rest : 0);
	}
}

/* Two descriptors in the memory @list, for a page at @first and one at @second. */
static void point_by_list(struct both *b, struct gkv_sqe *sqe, uint8_t opcode, uint32_t nsid,
			  bool list, uint64_t first, uint64_t second)
{
	struct gkv_sgl_desc d[2] = {
		{ .addr = htole64(first), .len = htole32(4096) },
		{ .addr = htole64(second), .len = htole32(4096) },
	};
	uint64_t words[4];
	volatile uint64_t *to = (volatile uint64_t *)address(b, list, 65536);

	memcpy(words, d, sizeof(d));
	for (int i = 0; i < 4; i++)
		to[i] = words[i];
	raw_sqe(&b->r, sqe, opcode, nsid, "key", 3, VALUE);
	sqe->dptr.sgl.addr = htole64(iova(list, 65536));
	sqe->dptr.sgl.len = htole32(sizeof(d));
	sqe->dptr.sgl.type = GKV_SGL_LAST_SEGMENT;
}

static bool is(uint16_t got, uint16_t want, const char *what)
{
	if (got != want)
		tap_diag("%s: status %#x, not %#x", what, got, want);
	return got == want;
}

/* The right place serves: the value comes back. */
static bool right_place(struct both *b, uint32_t nsid, enum how how)
{
	bool vram = b->mode & GKV_MODE_DATA;
	uint64_t at = iova(vram, 0);
	struct gkv_sqe sqe;
	uint32_t dw0 = 0;
	bool good;

	gkv_pattern_fill(address(b, vram, 0), 0xb1d0, 0, VALUE);
	point(b, &sqe, GKV_OP_STORE, nsid, how, at, at + 4096, VALUE);
	good = is(run(b, &sqe, NULL), 0, "Store from the right place");
	fill_bytes(address(b, vram, 0), 0xa5, VALUE);
	point(b, &sqe, GKV_OP_RETRIEVE, nsid, how, at, at + 4096, VALUE);
	good &= is(run(b, &sqe, &dw0), 0, "Retrieve to the right place");
	return good && dw0 == VALUE &&
	       gkv_pattern_check(address(b, vram, 0), 0xb1d0, 0, VALUE) == -1;
}

/* The other one ends with 12h, changes no value and is not written to. */
static bool wrong_place(struct both *b, uint32_t nsid, enum how how)
{
	bool vram = b->mode & GKV_MODE_DATA;
	uint64_t good = iova(vram, 0), bad = iova(!vram, 0);
	struct gkv_sqe sqe;
	bool same;

	fill_bytes(address(b, !vram, 0), 0xa5, VALUE);
	point(b, &sqe, GKV_OP_STORE, nsid, how, bad, bad + 4096, VALUE);
	same = is(run(b, &sqe, NULL), ELSE, "Store from the wrong place");
	point(b, &sqe, GKV_OP_RETRIEVE, nsid, how, bad, bad + 4096, VALUE);
	same &= is(run(b, &sqe, NULL), ELSE, "Retrieve to the wrong place");
	point(b, &sqe, GKV_OP_LIST, nsid, how, bad, bad + 4096, VALUE);
	same &= is(run(b, &sqe, NULL), ELSE, "List to the wrong place");
	/* The first half where it may be, the other where it may not. */
	if (how == PRP) {
		point(b, &sqe, GKV_OP_STORE, nsid, how, good, bad, VALUE);
		same &= is(run(b, &sqe, NULL), ELSE, "Store of which half is in the wrong place");
		point(b, &sqe, GKV_OP_RETRIEVE, nsid, how, good, bad, VALUE);
		same &= is(run(b, &sqe, NULL), ELSE, "Retrieve of which half is in the wrong place");
	} else {
		point_by_list(b, &sqe, GKV_OP_STORE, nsid, vram, bad, good);
		same &= is(run(b, &sqe, NULL), ELSE, "Store of which half is in the wrong place");
		point_by_list(b, &sqe, GKV_OP_RETRIEVE, nsid, vram, good, bad);
		same &= is(run(b, &sqe, NULL), ELSE, "Retrieve of which half is in the wrong place");
	}
	return same && differs(address(b, !vram, 0), 0xa5, VALUE) == -1 &&
	       right_place(b, nsid, how);
}

/* It is the data that the bit is about: a list of it may lie in either memory. */
static bool lists_anywhere(struct both *b, uint32_t nsid)
{
	bool vram = b->mode & GKV_MODE_DATA, good = true;
	struct gkv_sqe sqe;

	for (int list = 0; list < 2; list++) {
		point_by_list(b, &sqe, GKV_OP_STORE, nsid, list, iova(vram, 0), iova(vram, 8192));
		good &= is(run(b, &sqe, NULL), 0, list ? "a list in VRAM" : "a list in host memory");
	}
	return good;
}

static void every_pointer(uint32_t mode)
{
	static const char * const hows[HOW_MANY] = { "SGL", "PRP" };
	static const char * const stores[] = { "mem", "local" };
	struct both b;

	if (!begin(&b, mode))
		return;
	for (uint32_t nsid = 1; nsid <= 2; nsid++) {
		bool right = true, wrong = true;

		for (enum how how = 0; how < HOW_MANY; how++) {
			if (!right_place(&b, nsid, how)) {
				tap_diag("by %s", hows[how]);
				right = false;
			}
			if (!wrong_place(&b, nsid, how)) {
				tap_diag("by %s", hows[how]);
				wrong = false;
			}
		}
		tap_ok(right && lists_anywhere(&b, nsid),
		       "mode %#x, store %s: data in %s is served, its lists anywhere", mode,
		       stores[nsid - 1], mode & GKV_MODE_DATA ? "VRAM" : "host memory");
		tap_ok(wrong, "mode %#x, store %s: data in %s ends with 12h in the CQ in %s", mode,
		       stores[nsid - 1], mode & GKV_MODE_DATA ? "host memory" : "VRAM",
		       mode & GKV_MODE_CQ ? "VRAM" : "host memory");
	}
	end(&b);
}

/* ---- F35: queue pairs whose parts are not where their mode says ---- */

/* The module's queue pair in mode @made, offered as one of mode @said. */
static bool contradiction(struct raw *r, uint32_t made, uint32_t said)
{
	struct raw_part parts[GKVDRV_PARTS];
	const char *want = NULL;
	struct gkvdrv_qp qp;
	struct raw_qp raw;
	char mode[32];
	bool good;
	int fd = qp_create(gkv, &qp, DEPTH, made, provider), rc;

	if (fd < 0) {
		tap_diag("%#x: %d, %s", made, fd, why.text);
		return false;
	}
	for (unsigned int i = 0; i < GKVDRV_PARTS; i++) {
		parts[i] = (struct raw_part) { .fd = fd, .offset = qp.parts[i].map_offset };
		/* Doorbells are not sent when they are the session's. */
		if (!want && (made ^ said) >> i & 1 && (i != GKVDRV_DB || said & GKV_MODE_DB))
			want = part_names[i];
	}
	rc = raw_qp_place(r, &raw, 1, DEPTH, said, parts);
	snprintf(mode, sizeof(mode), "memory mode %#x", said);
	if (want)
		good = rc == -EINVAL && !strncmp(r->text, want, strlen(want)) &&
		       strstr(r->text, mode) && strcasestr(r->text, "VRAM") && strstr(r->text, "host");
	else
		good = rc == 0;
	if (!rc) {
		good &= raw_id(r, GKV_MSG_QP_DEL, 1) == 0;
		raw_qp_free(&raw);
	}
	if (!good)
		tap_diag("made in mode %#x, said to be %#x: %d, %s", made, said, rc, r->text);
	close(fd);
	return good;
}

static void contradictions(uint32_t most)
{
	unsigned int count = 0, bad = 0;
	struct raw r;

	if (raw_open_with(&r, rig.socket, GKV_FEATURE_VRAM)) {
		unmade("a session", -1, r.text);
		return;
	}
	for (uint32_t made = 0; made <= most; made++) {
		for (uint32_t said = 0; said <= GKV_MODE_MASK; said++, count++)
			bad += !contradiction(&r, made, said);
	}
	tap_ok(!bad, "parts that contradict the mode are refused by name, others not: %u of %u", bad,
	       count);
	raw_close(&r);
}

static void refused(struct raw *r, int rc, int want, const char *says, const char *what)
{
	if (!tap_ok(rc == want && strstr(r->text, says), "%s", what))
		tap_diag("returned %d, not %d: %s", rc, want, r->text);
}

/* What a descriptor is, and where in it a part is, the module says and not the client. */
static void what_it_is(void)
{
	struct raw_part parts[GKVDRV_PARTS];
	struct gkvdrv_qp qp;
	struct raw_qp raw;
	struct raw r;
	int region = region_alloc(gkv, provider, LEN);
	int fd = qp_create(gkv, &qp, 256, 7, provider);

	if (region < 0 || fd < 0 || raw_open_with(&r, rig.socket, GKV_FEATURE_VRAM)) {
		unmade("a region, a queue pair and a session", fd, why.text);
		return;
	}
	for (unsigned int i = 0; i < GKVDRV_PARTS; i++)
		parts[i] = (struct raw_part) { .fd = fd, .offset = qp.parts[i].map_offset };
	for (unsigned int i = 0; i < GKVDRV_PARTS; i++) {
		struct raw_part was = parts[i];
		char what[80];

		parts[i].fd = region;
		parts[i].offset = 0;
		snprintf(what, sizeof(what), "%s in a region, and not of a queue pair", part_names[i]);
		refused(&r, raw_qp_place(&r, &raw, 1, 256, 7, parts), -EINVAL, part_names[i], what);
		parts[i] = was;
		parts[i].offset = qp.parts[(i + 1) % GKVDRV_PARTS].map_offset;
		snprintf(what, sizeof(what), "%s at the offset of another part", part_names[i]);
		refused(&r, raw_qp_place(&r, &raw, 1, 256, 7, parts), -EINVAL, part_names[i], what);
		parts[i] = was;
	}
	refused(&r, raw_qp_place(&r, &raw, 1, 512, 7, parts), -EINVAL, "SQ",
		"more entries than were made");
	refused(&r, raw_region(&r, 3, IN_VRAM, 4096, fd), -EINVAL, "region", "a queue pair as data");
	if (tap_ok(raw_qp_place(&r, &raw, 1, 256, 7, parts) == 0, "the same session, as it should be")) {
		raw_id(&r, GKV_MSG_QP_DEL, 1);
		raw_qp_free(&raw);
	}
	gkv_revoke(fd);
	refused(&r, raw_qp_place(&r, &raw, 1, 256, 7, parts), -ENODEV, "revoked", "what is revoked");
	raw_close(&r);
	close(region);
	close(fd);
}

int main(void)
{
	char conf[512];

	snprintf(conf, sizeof(conf),
		 "[daemon]\nreactors = 1\nbuffer_memory = 64M\n"
		 "[namespace main]\nnsid = 1\nstack = mem\n"
		 "[namespace raw]\nnsid = 2\nstack = local\nlocal.path = %s\nverify = off\n",
		 getenv("GKV_DISK"));
	rig_init(&rig, conf);
	rig_start(&rig);
	gkv = gkv_open();
	if (!tap_ok(gkv >= 0, "/dev/gkv"))
		return tap_done();
	if (kernel_has_p2pdma()) {
		provider = vram_provider(gkv);
		if (!tap_ok(provider > 0, "a carve-out"))
			return tap_done();
		for (uint32_t mode = 0; mode <= GKV_MODE_MASK; mode++)
			every_pointer(mode);
		what_it_is();
	} else {
		tap_skip("this kernel has no CONFIG_PCI_P2PDMA", "data pointers in sixteen modes");
	}
	/* The module's host memory is not VRAM on any kernel. */
	contradictions(kernel_has_p2pdma() ? 7 : 0);
	tap_ok(rig_alive(&rig), "kvbridged lives");
	if (provider > 0)
		tap_ok(wait_used(gkv, provider, 0) == 0, "all VRAM is free again");
	close(gkv);
	rig_fini(&rig);
	return tap_done();
}
