// SPDX-License-Identifier: MIT
/*
 * Settings, counters and providers in sysfs (docs/ABI/): live, range-checked, announced to who
 * waits for a change, and the same as the ioctls say.
 */
#include "gkvtest.h"
#include "kselftest_harness.h"

#include <dirent.h>

FIXTURE(sysfs) {
	int gkv;
};

FIXTURE_SETUP(sysfs)
{
	self->gkv = gkv_open();
	ASSERT_GE(self->gkv, 0);
}

FIXTURE_TEARDOWN(sysfs)
{
	EXPECT_EQ(0, gkv_set_attr("poll_interval_ns", 1000000));
	EXPECT_EQ(0, gkv_set_attr("max_queue_depth", 4096));
	EXPECT_EQ(0, gkv_set_attr("max_user_objects", 4096));
	EXPECT_EQ(0, gkv_set_attr("max_user_bytes", ~0ull));
	close(self->gkv);
}

static const struct setting {
	const char *name;
	uint64_t normal, min, max;
} settings[] = {
	{ "poll_interval_ns", 1000000, 1000, 1000000000 },
	{ "max_queue_depth", 4096, 2, 65536 },
	{ "max_user_objects", 4096, 1, 1 << 20 },
	{ "max_user_bytes", ~0ull, 0, ~0ull },
};

#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

static int set_text(const char *name, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), GKVT_SYSFS "/%s", name);
	return sysfs_write(path, text);
}

static int info(int gkv, struct gkvdrv_info *a)
{
	*a = (struct gkvdrv_info) { .abi = GKVDRV_ABI };
	return gkv_call(gkv, GKVDRV_INFO, a);
}

static uint64_t value_of(const struct gkvdrv_info *a, size_t i)
{
	switch (i) {
	case 0: return a->poll_interval_ns;
	case 1: return a->max_queue_depth;
	case 2: return a->max_user_objects;
	default: return a->max_user_bytes;
	}
}

static bool reads_as(const char *name, uint64_t value)
{
	char path[128], text[64], want[64];

	snprintf(path, sizeof(path), GKVT_SYSFS "/%s", name);
	snprintf(want, sizeof(want), "%llu", (unsigned long long)value);
	return sysfs_read(path, text, sizeof(text)) == 0 && strcmp(text, want) == 0;
}

TEST_F(sysfs, settings_have_their_defaults)
{
	for (size_t i = 0; i < SETTINGS; i++) {
		EXPECT_TRUE(reads_as(settings[i].name, settings[i].normal)) {
			TH_LOG("%s", settings[i].name);
		}
	}
}

/* F32: a value that cannot work is refused when it is written, and nothing changes. */
TEST_F(sysfs, settings_are_checked_and_live)
{
	static const char * const nonsense[] = {
		"\n", "x", "1x", "-1", "0x", "1 2", "1.5", "18446744073709551616",
	};
	struct gkvdrv_info a;

	for (size_t i = 0; i < SETTINGS; i++) {
		const struct setting *s = &settings[i];

		EXPECT_EQ(0, gkv_set_attr(s->name, s->min));
		ASSERT_EQ(0, info(self->gkv, &a));
		EXPECT_EQ(s->min, value_of(&a, i));
		EXPECT_TRUE(reads_as(s->name, s->min));
		if (s->min)
			EXPECT_EQ(-ERANGE, gkv_set_attr(s->name, s->min - 1));
		EXPECT_EQ(0, gkv_set_attr(s->name, s->max));
		if (s->max != ~0ull)
			EXPECT_EQ(-ERANGE, gkv_set_attr(s->name, s->max + 1));
		ASSERT_EQ(0, info(self->gkv, &a));
		EXPECT_EQ(s->max, value_of(&a, i));
		for (size_t k = 0; k < sizeof(nonsense) / sizeof(nonsense[0]); k++) {
			EXPECT_LT(set_text(s->name, nonsense[k]), 0) {
				TH_LOG("%s takes '%s'", s->name, nonsense[k]);
			}
		}
		EXPECT_TRUE(reads_as(s->name, s->max));
		/* With or without a newline, decimal or not. */
		EXPECT_EQ(0, set_text(s->name, "4096"));
		EXPECT_EQ(0, set_text(s->name, "0x1000\n"));
		EXPECT_TRUE(reads_as(s->name, 4096));
	}
}

static bool changed(int fd, int timeout)
{
	struct pollfd p = { .fd = fd, .events = POLLPRI };

	return poll(&p, 1, timeout) == 1 && p.revents & POLLPRI;
}

/* The daemon follows a setting without a restart, and without asking all the time. */
TEST_F(sysfs, a_change_wakes_who_waits_for_it)
{
	for (size_t i = 0; i < SETTINGS; i++) {
		char path[128], text[64];
		int fd, status;
		pid_t pid;

		snprintf(path, sizeof(path), GKVT_SYSFS "/%s", settings[i].name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		ASSERT_GE(fd, 0);
		/* What was read is known: the next change is news. */
		ASSERT_GT(pread(fd, text, sizeof(text), 0), 0);
		EXPECT_FALSE(changed(fd, 0));
		pid = fork();
		ASSERT_GE(pid, 0);
		if (pid == 0)
			_exit(changed(fd, 8000) ? 0 : 1);
		sleep_ms(200);
		ASSERT_EQ(0, gkv_set_attr(settings[i].name, 5000));
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_EQ(0, status);
		EXPECT_TRUE(changed(fd, 0));
		ASSERT_GT(pread(fd, text, sizeof(text), 0), 0);
		EXPECT_EQ(5000, atoi(text));
		EXPECT_FALSE(changed(fd, 0));
		/* A refused one is none. */
		EXPECT_LT(set_text(settings[i].name, "x"), 0);
		EXPECT_FALSE(changed(fd, 100));
		close(fd);
	}
}

TEST_F(sysfs, counters_count)
{
	static const char * const names[] = {
		"regions", "imports", "qps", "revoked", "refused", "faults", "sigbus",
	};
	int64_t before[7], after[7];
	struct gkvdrv_qp qp;
	char path[64];
	char *at;

	for (int i = 0; i < 7; i++) {
		snprintf(path, sizeof(path), "counters/%s", names[i]);
		before[i] = gkv_attr(path);
		ASSERT_GE(before[i], 0);
	}
	ASSERT_GE(qp_create(self->gkv, &qp, 8, 0, 0), 0);
	ASSERT_LT(qp_create(self->gkv, &(struct gkvdrv_qp) { }, 1, 0, 0), 0);
	at = map_shared(qp.fd, 0, 4096);
	ASSERT_TRUE(can_write(at));
	ASSERT_TRUE(can_write(at));
	ASSERT_EQ(0, gkv_revoke(qp.fd));
	ASSERT_FALSE(can_read(at));
	for (int i = 0; i < 7; i++) {
		snprintf(path, sizeof(path), "counters/%s", names[i]);
		after[i] = gkv_attr(path) - before[i];
	}
	EXPECT_EQ(0, after[0]);
	EXPECT_EQ(0, after[1]);
	EXPECT_EQ(1, after[2]);
	EXPECT_EQ(1, after[4]);
	EXPECT_EQ(1, after[5]);
	EXPECT_EQ(1, after[6]);
	munmap(at, 4096);
	close(qp.fd);
}

/* ---- Providers ---- */

static bool provider_file(uint32_t id, const char *name, const char *want)
{
	char path[128], text[64];

	snprintf(path, sizeof(path), GKVT_SYSFS "/providers/%u/%s", id, name);
	if (sysfs_read(path, text, sizeof(text)) || strcmp(text, want)) {
		printf("# %s: '%s', expected '%s'\n", path, text, want);
		return false;
	}
	return true;
}

static const char *number(uint64_t value)
{
	static char text[4][32];
	static int next;
	char *to = text[next++ % 4];

	snprintf(to, 32, "%llu", (unsigned long long)value);
	return to;
}

static int count_providers(void)
{
	DIR *dir = opendir(GKVT_SYSFS "/providers");
	struct dirent *entry;
	int n = 0;

	while (dir && (entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	if (!dir)
		return -1;
	closedir(dir);
	return n;
}

TEST_F(sysfs, providers_are_as_the_ioctl_says)
{
	struct gkvdrv_provider p = { };
	struct gkvdrv_info a;
	int id, fd;

	ASSERT_EQ(0, info(self->gkv, &a));
	EXPECT_EQ((int)a.nr_providers, count_providers());
	if (!kernel_has_p2pdma()) {
		EXPECT_EQ(0, count_providers());
		EXPECT_EQ(-ENOENT, gkv_call(self->gkv, GKVDRV_PROVIDER_INFO, &p));
		return;
	}
	id = vram_provider(self->gkv);
	ASSERT_GT(id, 0);
	ASSERT_EQ(0, info(self->gkv, &a));
	EXPECT_EQ((int)a.nr_providers, count_providers());
	fd = region_alloc(self->gkv, id, 3 * MIB);
	ASSERT_GE(fd, 0);
	p.id = id;
	ASSERT_EQ(0, gkv_call(self->gkv, GKVDRV_PROVIDER_INFO, &p));
	EXPECT_EQ(3 * MIB, p.used);
	EXPECT_EQ(1u, p.nr_objects);
	EXPECT_TRUE(provider_file(id, "kind", "carve-out"));
	EXPECT_TRUE(provider_file(id, "function", getenv("GKV_VRAM_BDF")));
	EXPECT_TRUE(provider_file(id, "bar", number(p.bar)));
	EXPECT_TRUE(provider_file(id, "offset", number(p.offset)));
	EXPECT_TRUE(provider_file(id, "size", number(p.len)));
	EXPECT_TRUE(provider_file(id, "used", number(3 * MIB)));
	EXPECT_TRUE(provider_file(id, "available", number(p.len - 3 * MIB)));
	EXPECT_EQ(strtoull(getenv("GKV_VRAM_SIZE"), NULL, 0), p.len);
	close(fd);
	EXPECT_EQ(0, wait_used(self->gkv, id, 0));
	EXPECT_TRUE(provider_file(id, "used", "0"));
}

/* A directory that is open, a file that is open, when the provider goes. */
TEST_F(sysfs, files_of_a_provider_that_goes)
{
	char path[128], text[64];
	int id, fd, cwd;

	if (!kernel_has_p2pdma())
		SKIP(return, "this kernel has no CONFIG_PCI_P2PDMA");
	id = vram_provider(self->gkv);
	ASSERT_GT(id, 0);
	snprintf(path, sizeof(path), GKVT_SYSFS "/providers/%d", id);
	cwd = open(path, O_RDONLY | O_DIRECTORY);
	fd = openat(cwd, "used", O_RDONLY);
	ASSERT_GE(fd, 0);
	ASSERT_GT(pread(fd, text, sizeof(text), 0), 0);
	ASSERT_EQ(0, pci_unbind(getenv("GKV_VRAM_BDF")));
	EXPECT_EQ(-1, pread(fd, text, sizeof(text), 0));
	EXPECT_EQ(ENODEV, errno);
	EXPECT_EQ(-1, openat(cwd, "size", O_RDONLY));
	EXPECT_EQ(-1, access(path, F_OK));
	close(fd);
	close(cwd);
	/* A number is not given twice. */
	EXPECT_GT(vram_provider(self->gkv), id);
}

TEST_HARNESS_MAIN
