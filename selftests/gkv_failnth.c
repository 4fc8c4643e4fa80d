// SPDX-License-Identifier: MIT
/*
 * F49: every allocation and every user copy of every call fails once: the call ends with an error
 * that says so or does without, and nothing is left of it. /proc/self/fail-nth makes the n-th
 * chance for a failure one; n grows until a call gets through without having met its turn.
 *
 * Needs a kernel with fault injection, and says how many failures it injected: none is a failure.
 * GKV_FAIL_NTH=1 asks for it; it takes minutes, and the kernel's log gets longer by it.
 */
#include "gkvtest.h"
#include "kselftest_harness.h"

#define BAR	2
#define SLICE	(2 * MIB)	/* of the foreign provider */
#define MOST	5000u		/* chances in one call */
#define PIECE	4096u

static int nth = -1;

/* Everything may fail, also what may sleep; and it needs no stack trace for each. */
static void set_up_injection(void)
{
	static const char * const settings[] = {
		"failslab/ignore-gfp-wait", "fail_page_alloc/ignore-gfp-wait",
		"fail_page_alloc/ignore-gfp-highmem",
	};
	static const char * const verbose[] = {
		"failslab", "fail_page_alloc", "fail_usercopy", "fail_function",
	};
	char path[96];

	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s", settings[i]);
		sysfs_write(path, "N");
	}
	for (size_t i = 0; i < sizeof(verbose) / sizeof(verbose[0]); i++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s/verbose", verbose[i]);
		sysfs_write(path, "0");
	}
	sysfs_write("/sys/kernel/debug/fail_page_alloc/min-order", "0");
}

static bool arm(unsigned int n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n);

	return pwrite(nth, text, len, 0) == len;
}

/* Whether a failure was injected since. Reading and disarming are calls that can fail, too. */
static bool disarm(void)
{
	char text[16] = "";
	bool hit = pread(nth, text, sizeof(text) - 1, 0) > 0 && text[0] == '0';

	while (pwrite(nth, "0", 1, 0) != 1 && errno == EFAULT)
		;
	return hit;
}

FIXTURE(nth) {
	int gkv, exporter, provider, foreign, buf, region, imported, disk, event;
	int made;		/* a descriptor that the call gave out */
	char *at;
	size_t len;
	const char *vram, *bdf;
	struct gkvdrv_info before;
	struct gkvdrv_run runs[64];
};

static int get_info(int gkv, struct gkvdrv_info *info)
{
	*info = (struct gkvdrv_info) { .abi = GKVDRV_ABI };
	return gkv_call(gkv, GKVDRV_INFO, info);
}

FIXTURE_SETUP(nth)
{
	struct exporter_make how = {
		.layout = EXPORTER_REVERSED, .len = 64 * PIECE, .piece = PIECE, .offset = 64 * PIECE,
	};
	struct exporter_make other = {
		.layout = EXPORTER_REVERSED, .len = 64 * PIECE, .piece = PIECE,
	};
	int buf;

	nth = open("/proc/self/fail-nth", O_RDWR | O_CLOEXEC);
	if (nth < 0)
		SKIP(return, "this kernel has no fault injection");
	if (!getenv("GKV_FAIL_NTH"))
		SKIP(return, "not asked for by GKV_FAIL_NTH: it has a machine of its own");
	set_up_injection();
	self->made = -1;
	self->vram = getenv("GKV_VRAM_BDF");
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
	self->provider = vram_provider(self->gkv);
	ASSERT_GT(self->provider, 0);
	self->exporter = exporter_start(&self->bdf);
	ASSERT_GE(self->exporter, 0);
	self->foreign = provider_add(self->gkv, self->bdf, BAR, 0, SLICE);
	ASSERT_GT(self->foreign, 0);
	self->region = region_alloc(self->gkv, self->provider, MIB);
	ASSERT_GE(self->region, 0);
	buf = exporter_make_as(self->exporter, &other);
	self->imported = region_import(self->gkv, self->foreign, buf, 0, 0);
	ASSERT_GE(self->imported, 0);
	close(buf);
	self->buf = exporter_make_as(self->exporter, &how);
	ASSERT_GE(self->buf, 0);
	self->disk = open(getenv("GKV_DISK"), O_RDONLY | O_CLOEXEC);
	ASSERT_GE(self->disk, 0);
	self->event = eventfd(0, EFD_CLOEXEC);
	ASSERT_GE(self->event, 0);
	ASSERT_EQ(0, get_info(self->gkv, &self->before));
}

FIXTURE_TEARDOWN(nth)
{
	close(self->region);
	close(self->imported);
	close(self->buf);
	close(self->disk);
	close(self->event);
	EXPECT_EQ(0, wait_used(self->gkv, self->provider, 0));
	EXPECT_TRUE(exporter_idle(self->exporter));
	EXPECT_EQ(0, exporter_stop(self->exporter, self->bdf));
	close(self->gkv);
	close(nth);
}

/* What the user has, as it was before: late frees included. */
static bool as_before(FIXTURE_DATA(nth) *self)
{
	struct gkvdrv_info now;

	return eventually(get_info(self->gkv, &now) == 0 &&
			  now.user_objects == self->before.user_objects &&
			  now.user_bytes == self->before.user_bytes &&
			  now.nr_providers == self->before.nr_providers &&
			  exporter_state(self->exporter, self->buf).attached == 0);
}

struct step {
	int (*run)(FIXTURE_DATA(nth) *self);
	void (*prepare)(FIXTURE_DATA(nth) *self);
	void (*undo)(FIXTURE_DATA(nth) *self);
	bool loose;		/* much of the kernel's own is in it: any error will do */
};

static void undo(FIXTURE_DATA(nth) *self)
{
	if (self->at)
		munmap(self->at, self->len);
	if (self->made >= 0)
		close(self->made);
	self->at = NULL;
	self->made = -1;
}

static void sweep(struct __test_metadata *_metadata, FIXTURE_DATA(nth) *self,
		  const struct step *step)
{
	unsigned int n, failed = 0;
	uint64_t start = now_ms();

	for (n = 1; n < MOST; n++) {
		bool hit;
		int rc;

		if (step->prepare)
			step->prepare(self);
		ASSERT_TRUE(arm(n));
		rc = step->run(self);
		hit = disarm();
		if (step->undo)
			step->undo(self);
		undo(self);
		ASSERT_TRUE(as_before(self) && self->provider > 0 && self->foreign > 0) {
			TH_LOG("chance %u, result %d; providers %d and %d", n, rc, self->provider,
			       self->foreign);
		}
		if (!hit) {
			ASSERT_LE(0, rc) {
				TH_LOG("chance %u: not injected, but result %d: %s", n, rc, why.text);
			}
			break;
		}
		failed += rc < 0;
		if (rc < 0 && !step->loose)
			ASSERT_TRUE(rc == -ENOMEM || rc == -EFAULT) {
				TH_LOG("chance %u: %d, %s", n, rc, why.text);
			}
	}
	ASSERT_LT(n, MOST);
	TH_LOG("%u failures injected, %u of them failed the call; %llu ms", n - 1, failed,
	       (unsigned long long)(now_ms() - start));
	/* Or it would have tested nothing. */
	EXPECT_GT(n - 1, 0u);
	EXPECT_GT(failed, 0u);
}

#define SWEEP(_name, ...)							\
TEST_F_TIMEOUT(nth, _name, 600)							\
{										\
	sweep(_metadata, self, &(struct step) { .run = _name, ##__VA_ARGS__ });	\
}

/* ---- Calls of /dev/gkv ---- */

static int opening(FIXTURE_DATA(nth) *self)
{
	self->made = gkv_open();
	return self->made;
}

SWEEP(opening)

static int info(FIXTURE_DATA(nth) *self)
{
	struct gkvdrv_info i;

	return get_info(self->gkv, &i);
}

SWEEP(info)

static int provider_info(FIXTURE_DATA(nth) *self)
{
	struct gkvdrv_provider p = { };

	return gkv_call(self->gkv, GKVDRV_PROVIDER_INFO, &p);
}

SWEEP(provider_info)

static int alloc(FIXTURE_DATA(nth) *self)
{
	self->made = region_alloc(self->gkv, self->provider, 16384);
	return self->made;
}

SWEEP(alloc)

/* What is refused has a reason to be copied out. */
static int refusal(FIXTURE_DATA(nth) *self)
{
	int rc = region_alloc(self->gkv, self->provider, 1ull << 40);

	return rc == -ENOMEM && why.reason == GKVDRV_WHY_SIZE ? 0 : rc;
}

SWEEP(refusal)

static int import(FIXTURE_DATA(nth) *self)
{
	self->made = region_import(self->gkv, self->foreign, self->buf, 0, 0);
	return self->made;
}

SWEEP(import)

static int qp_host(FIXTURE_DATA(nth) *self)
{
	struct gkvdrv_qp qp;

	self->made = qp_create(self->gkv, &qp, 300, 0, 0);
	return self->made;
}

SWEEP(qp_host)

static int qp_vram(FIXTURE_DATA(nth) *self)
{
	struct gkvdrv_qp qp;

	self->made = qp_create(self->gkv, &qp, 300, 7, self->provider);
	return self->made;
}

SWEEP(qp_vram)

static int qp_in_region(FIXTURE_DATA(nth) *self)
{
	struct gkvdrv_qp qp;
	int rc;

	qp_init(&qp, 256, 7);
	qp.parts[GKVDRV_SQ].region = self->region;
	qp.parts[GKVDRV_CQ].provider = self->provider;
	qp.parts[GKVDRV_DB].region = self->imported;
	qp.parts[GKVDRV_DB].offset = 8 * 4096;
	rc = gkv_call(self->gkv, GKVDRV_QP_CREATE, &qp);
	self->made = rc ? rc : qp.fd;
	return self->made;
}

SWEEP(qp_in_region)

/* ---- Calls of what it gives out ---- */

static int report_runs(FIXTURE_DATA(nth) *self)
{
	struct gkvdrv_report r = { .runs = (uintptr_t)self->runs, .nr_runs = 64 };

	return gkv_call(self->imported, GKVDRV_REPORT, &r);
}

SWEEP(report_runs)

static int notify(FIXTURE_DATA(nth) *self)
{
	return gkv_notify(self->region, self->event);
}

SWEEP(notify)

static int reach(FIXTURE_DATA(nth) *self)
{
	struct gkvdrv_reach a = { .blkdev = self->disk };

	return gkv_call(self->region, GKVDRV_REACH, &a);
}

SWEEP(reach)

static int polling(FIXTURE_DATA(nth) *self)
{
	struct pollfd p = { .fd = self->region };

	return poll(&p, 1, 0) < 0 ? -errno : 0;
}

SWEEP(polling)

/* A new one each time, with a queue pair and an event that must go with it. */
static void make_for_revocation(FIXTURE_DATA(nth) *self)
{
	self->made = region_alloc(self->gkv, self->provider, 65536);
	self->len = 65536;
	self->at = map_shared(self->made, 0, self->len);
	can_write(self->at);
}

static int revocation(FIXTURE_DATA(nth) *self)
{
	return gkv_revoke(self->made);
}

SWEEP(revocation, .prepare = make_for_revocation)

/* An access whose page cannot be had now is tried again by the processor. */
static int mmap_and_fault(FIXTURE_DATA(nth) *self)
{
	self->len = 16 * PIECE;
	self->at = map_shared(self->imported, 16 * PIECE, self->len);
	if (self->at == MAP_FAILED) {
		self->at = NULL;
		return -errno;
	}
	return can_write(self->at) && can_read(self->at + 5 * PIECE) ? 0 : -EIO;
}

SWEEP(mmap_and_fault)

/* ---- Providers, and the module ---- */

static void withdraw(FIXTURE_DATA(nth) *self)
{
	struct gkvdrv_provider p;

	close(self->imported);
	while (provider_of(self->gkv, self->bdf, GKVDRV_FOREIGN, &p) > 0)
		provider_del(self->gkv, p.id);
	/* Its pages go with its driver, and are made anew. */
	pci_unbind(self->bdf);
	pci_bind(self->bdf, "gkv-exporter");
}

static void bring_back(FIXTURE_DATA(nth) *self)
{
	struct gkvdrv_provider p;

	self->foreign = provider_of(self->gkv, self->bdf, GKVDRV_FOREIGN, &p);
	if (self->foreign < 0)
		self->foreign = provider_add(self->gkv, self->bdf, BAR, 0, SLICE);
	get_info(self->gkv, &self->before);
}

static int add_provider(FIXTURE_DATA(nth) *self)
{
	int rc = provider_add(self->gkv, self->bdf, BAR, 0, SLICE);

	return rc < 0 ? rc : 0;
}

SWEEP(add_provider, .prepare = withdraw, .undo = bring_back, .loose = true)

static int del_provider(FIXTURE_DATA(nth) *self)
{
	return provider_del(self->gkv, self->foreign);
}

SWEEP(del_provider, .undo = bring_back)

static void let_go(FIXTURE_DATA(nth) *self)
{
	close(self->region);
	self->region = -1;
	pci_unbind(self->vram);
}

/* drivers_probe runs the probe in the caller, and says nothing of how it went. */
static int bind_carveout(FIXTURE_DATA(nth) *self)
{
	int rc = sysfs_write("/sys/bus/pci/drivers_probe", self->vram);

	return rc || pci_has_driver(self->vram, "gkvdrv") ? rc : -ENODEV;
}

static void bind_again(FIXTURE_DATA(nth) *self)
{
	self->provider = vram_provider(self->gkv);
	get_info(self->gkv, &self->before);
}

SWEEP(bind_carveout, .prepare = let_go, .undo = bind_again, .loose = true)

static void unload(FIXTURE_DATA(nth) *self)
{
	close(self->gkv);
	module_unload("gkvdrv");
}

static int load(FIXTURE_DATA(nth) *self)
{
	return module_load("gkvdrv", NULL);
}

static void load_again(FIXTURE_DATA(nth) *self)
{
	if (access("/sys/module/gkvdrv", F_OK))
		module_load("gkvdrv", NULL);
	self->gkv = gkv_open();
	get_info(self->gkv, &self->before);
}

/* Without functions to bind to: that is swept above. */
TEST_F_TIMEOUT(nth, module_load, 900)
{
	const struct step step = {
		.run = load, .prepare = unload, .undo = load_again, .loose = true,
	};
	char path[128];

	close(self->region);
	close(self->imported);
	self->region = self->imported = -1;
	ASSERT_EQ(0, provider_del(self->gkv, self->foreign));
	ASSERT_EQ(0, pci_unbind(self->vram));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/driver_override", self->vram);
	ASSERT_EQ(0, sysfs_write(path, "\n"));
	sweep(_metadata, self, &step);
	self->provider = vram_provider(self->gkv);
	EXPECT_GT(self->provider, 0);
}

TEST_HARNESS_MAIN
