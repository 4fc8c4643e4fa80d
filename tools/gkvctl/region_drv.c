/* SPDX-License-Identifier: MIT */
/*
 * region --pid, --probe: where memory lies and which disk reaches it, as the kernel
 * module tells it of the descriptors themselves.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "drv.h"

#define RUNS_MAX 4096u

static void add_string(struct json_object *o, const char *name, const char *v)
{
	json_object_object_add(o, name, json_object_new_string(v));
}

/* ---- Reports ---- */

/* Bus addresses are for CAP_SYS_ADMIN only: without it there is nothing to add. */
static void add_runs(struct json_object *o, int fd, const struct gkvdrv_report *r)
{
	uint32_t n = r->nr_runs < RUNS_MAX ? r->nr_runs : RUNS_MAX;
	struct gkvdrv_run *runs = calloc(n ? n : 1, sizeof(*runs));
	struct gkvdrv_report again = { .head.size = sizeof(again), .part = r->part, .nr_runs = n,
				       .runs = (uintptr_t)runs };
	struct json_object *a, *run;
	char text[GKVDRV_TEXT];

	if (!runs || drv_ioctl(fd, GKVDRV_REPORT, &again, text)) {
		free(runs);
		return;
	}
	add_int(o, "bar_offset", again.bar_offset);
	a = json_object_new_array();
	/* It may have been revoked meanwhile. */
	for (uint32_t i = 0; i < n && i < again.nr_runs; i++) {
		run = json_object_new_object();
		add_int(run, "bus", runs[i].bus);
		add_int(run, "len", runs[i].len);
		json_object_array_add(a, run);
	}
	json_object_object_add(o, "runs", a);
	free(runs);
}

static const char *part_name(enum drv_fd_kind kind, uint32_t part)
{
	static const char *const names[] = { "sq", "cq", "db" };

	return kind == DRV_FD_REGION ? "data" : names[part];
}

static struct json_object *part_json(int fd, enum drv_fd_kind kind, uint32_t part)
{
	static const char *const places[] = { "?", "host", "vram", "gone" };
	struct gkvdrv_report r = { .head.size = sizeof(r), .part = part };
	struct json_object *o = json_object_new_object();
	char text[GKVDRV_TEXT], bdf[DRV_BDF];

	add_string(o, "part", part_name(kind, part));
	if (drv_ioctl(fd, GKVDRV_REPORT, &r, text)) {
		add_string(o, "place", "?");
		add_string(o, "error", text);
		return o;
	}
	add_string(o, "place", places[r.place <= GKVDRV_GONE ? r.place : 0]);
	add_int(o, "len", r.len);
	add_int(o, "pages", r.nr_pages);
	if (r.place != GKVDRV_VRAM)
		return o;
	add_int(o, "provider", r.provider);
	add_string(o, "function", drv_bdf(r.domain, r.bdf, bdf));
	add_int(o, "bar", r.bar);
	add_int(o, "nr_runs", r.nr_runs);
	add_runs(o, fd, &r);
	return o;
}

static struct json_object *object_json(int fd, enum drv_fd_kind kind)
{
	uint32_t nr_parts = kind == DRV_FD_QP ? GKVDRV_PARTS : 1;
	struct gkvdrv_report r = { .head.size = sizeof(r) };
	struct json_object *o = json_object_new_object(), *parts = json_object_new_array();
	char text[GKVDRV_TEXT];

	add_string(o, "kind", kind == DRV_FD_QP ? "queue pair" : "region");
	if (kind == DRV_FD_QP && !drv_ioctl(fd, GKVDRV_REPORT, &r, text))
		add_int(o, "mode", r.mode);
	for (uint32_t i = 0; i < nr_parts; i++)
		json_object_array_add(parts, part_json(fd, kind, i));
	json_object_object_add(o, "parts", parts);
	return o;
}

/* ---- Reach ---- */

struct probe {
	int disk;	/* descriptor, or -1: nothing is asked */
	unsigned int asked, refused;
};

/* Add what the module says of @fd, a region, and the disk. */
static void add_reach(struct json_object *o, int fd, struct probe *p)
{
	struct gkvdrv_reach r = { .head.size = sizeof(r), .blkdev = p->disk };
	char text[GKVDRV_TEXT];
	int ret = drv_ioctl(fd, GKVDRV_REACH, &r, text);

	p->asked++;
	p->refused += ret != 0;
	json_object_object_add(o, "reached", json_object_new_boolean(!ret));
	if (ret) {
		add_string(o, "reason", drv_why(r.head.reason));
		add_string(o, "why", text);
	} else {
		add_string(o, "map", r.map == GKVDRV_MAP_BUS ? "bus" : "bridge");
		add_int(o, "distance", r.distance);
	}
}

static int open_disk(const struct ctl *c, const char *path, struct probe *p)
{
	struct stat st;

	*p = (struct probe){ .disk = -1 };
	if (!path)
		return EX_DONE;
	p->disk = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (p->disk < 0)
		return ctl_fail(c, "%s: %s", path, strerror(errno));
	if (!fstat(p->disk, &st) && S_ISBLK(st.st_mode))
		return EX_DONE;
	close(p->disk);
	return ctl_fail(c, "%s is no block device", path);
}

static int close_disk(const struct ctl *c, const char *path, struct probe *p)
{
	if (p->disk >= 0)
		close(p->disk);
	if (p->refused)
		return ctl_fail(c, "%s cannot do DMA to %u of %u", path, p->refused, p->asked);
	return EX_DONE;
}

/* ---- Of a process ---- */

static int explain_take(const struct ctl *c, int pid, int nr, int err)
{
	if (err == EPERM || err == EACCES)
		return ctl_fail(c, "process %d may not be looked into: it takes root, or to be its user "
				   "and kernel.yama.ptrace_scope 0", pid);
	return ctl_fail(c, "descriptor %d of process %d: %s", nr, pid, strerror(err));
}

static int add_descriptor(const struct ctl *c, struct json_object *list, int pidfd, int pid, int nr,
			  struct probe *p)
{
	struct json_object *o;
	char path[64], name[64];
	enum drv_fd_kind kind;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, nr);
	n = readlink(path, name, sizeof(name) - 1);
	name[n > 0 ? n : 0] = '\0';
	kind = drv_fd_kind(name);
	if (kind != DRV_FD_REGION && kind != DRV_FD_QP)
		return EX_DONE;
	fd = (int)syscall(SYS_pidfd_getfd, pidfd, nr, 0);
	/* It may have been closed meanwhile. */
	if (fd < 0)
		return errno == EBADF ? EX_DONE : explain_take(c, pid, nr, errno);
	o = object_json(fd, kind);
	add_int(o, "fd", (uint64_t)nr);
	if (p->disk >= 0 && kind == DRV_FD_REGION)
		add_reach(o, fd, p);
	json_object_array_add(list, o);
	close(fd);
	return EX_DONE;
}

static int by_fd(const void *a, const void *b)
{
	struct json_object *x = NULL, *y = NULL;

	json_object_object_get_ex(*(struct json_object *const *)a, "fd", &x);
	json_object_object_get_ex(*(struct json_object *const *)b, "fd", &y);
	return json_object_get_int(x) - json_object_get_int(y);
}

static int add_descriptors(const struct ctl *c, struct json_object *list, int pid, struct probe *p)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), ret = EX_DONE;
	struct dirent *e;
	char path[64];
	DIR *dir;

	if (pidfd < 0)
		return ctl_fail(c, "process %d: %s", pid, strerror(errno));
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	if (!dir) {
		ret = ctl_fail(c, "process %d may not be looked into: %s", pid, strerror(errno));
		close(pidfd);
		return ret;
	}
	while (!ret && (e = readdir(dir))) {
		if (isdigit((unsigned char)e->d_name[0]))
			ret = add_descriptor(c, list, pidfd, pid, atoi(e->d_name), p);
	}
	closedir(dir);
	close(pidfd);
	json_object_array_sort(list, by_fd);
	return ret;
}

/* One row a part, with what concerns the whole descriptor in the first. */
static void view_descriptors(struct json_object *list)
{
	static const struct view_col cols[] = {
		{ "fd", "FD", VIEW_PLAIN },	{ "kind", "KIND", VIEW_PLAIN },
		{ "mode", "MODE", VIEW_HEX },	{ "part", "PART", VIEW_PLAIN },
		{ "place", "PLACE", VIEW_PLAIN }, { "len", "LENGTH", VIEW_BYTES },
		{ "pages", "PAGES", VIEW_PLAIN }, { "provider", "PROVIDER", VIEW_PLAIN },
		{ "function", "FUNCTION", VIEW_PLAIN }, { "bar", "BAR", VIEW_PLAIN },
		{ "bar_offset", "BAR OFFSET", VIEW_HEX }, { "nr_runs", "RUNS", VIEW_PLAIN },
		{ "bus", "FIRST BUS ADDRESS", VIEW_HEX },
	};
	struct json_object *rows = json_object_new_array();

	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *o = json_object_array_get_idx(list, i), *parts = NULL;

		json_object_object_get_ex(o, "parts", &parts);
		for (size_t k = 0; k < json_object_array_length(parts); k++) {
			struct json_object *row = json_object_new_object(), *runs = NULL, *bus = NULL;
			struct json_object *part = json_object_array_get_idx(parts, k);

			json_object_object_foreach(o, name, v)
			{
				if (strcmp(name, "parts"))
					json_object_object_add(row, name, json_object_get(v));
			}
			json_object_object_foreach(part, field, w)
			{
				if (strcmp(field, "runs"))
					json_object_object_add(row, field, json_object_get(w));
			}
			json_object_object_get_ex(part, "runs", &runs);
			if (runs && json_object_array_length(runs) &&
			    json_object_object_get_ex(json_object_array_get_idx(runs, 0), "bus", &bus))
				json_object_object_add(row, "bus", json_object_get(bus));
			json_object_array_add(rows, row);
		}
	}
	view_table(rows, cols, sizeof(cols) / sizeof(cols[0]), "");
	json_object_put(rows);
}

static const char *member_text(struct json_object *o, const char *name)
{
	struct json_object *v;

	return json_object_object_get_ex(o, name, &v) && v ? json_object_get_string(v) : "-";
}

/* What of @list was asked about, each as a line that begins with @what and its member @key. */
static void view_reach(struct json_object *list, const char *disk, const char *what, const char *key)
{
	struct json_object *reached;

	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *o = json_object_array_get_idx(list, i);

		if (!json_object_object_get_ex(o, "reached", &reached))
			continue;
		printf("%s %s: ", what, member_text(o, key));
		if (!reached)
			printf("not asked: %s\n", member_text(o, "why"));
		else if (json_object_get_boolean(reached))
			printf("%s reaches it, %s (distance %s)\n", disk,
			       strcmp(member_text(o, "map"), "bus") ? "through the host bridge" :
								      "by bus address",
			       member_text(o, "distance"));
		else
			printf("no (%s): %s\n", member_text(o, "reason"), member_text(o, "why"));
	}
}

static void view_process(struct json_object *doc, struct json_object *list, const char *disk)
{
	printf("process %s (%s): %zu descriptors, %s mappings of memory of " GKVDRV_PATH "\n",
	       member_text(doc, "pid"), member_text(doc, "name"), json_object_array_length(list),
	       member_text(doc, "mappings"));
	if (!json_object_array_length(list))
		return;
	view_descriptors(list);
	if (disk)
		view_reach(list, disk, "descriptor", "fd");
}

int region_of_pid(struct ctl *c, int pid, const char *disk)
{
	struct json_object *doc, *list;
	struct probe p;
	char name[32];
	int ret, maps;

	if (!drv_loaded())
		return drv_missing(c);
	ret = open_disk(c, disk, &p);
	if (ret)
		return ret;
	list = json_object_new_array();
	ret = add_descriptors(c, list, pid, &p);
	if (ret) {
		json_object_put(list);
		p.refused = 0;
		close_disk(c, disk, &p);
		return ret;
	}
	doc = json_object_new_object();
	drv_comm(pid, name);
	maps = drv_mappings(pid);
	add_int(doc, "pid", (uint64_t)pid);
	add_string(doc, "name", name);
	json_object_object_add(doc, "mappings", maps >= 0 ? json_object_new_int(maps) : NULL);
	json_object_object_add(doc, "descriptors", list);
	if (disk)
		add_string(doc, "disk", disk);
	if (c->json)
		view_json(doc);
	else if (!c->quiet)
		view_process(doc, list, disk);
	json_object_put(doc);
	return close_disk(c, disk, &p);
}

/* ---- Of carve-outs ---- */

/* A page of it is had for as long as the question takes. */
static struct json_object *ask_provider(int gkv, const struct gkvdrv_provider *info, uint64_t page,
					struct probe *p)
{
	struct gkvdrv_alloc a = { .head.size = sizeof(a), .provider = info->id, .len = page };
	struct json_object *o = json_object_new_object();
	char text[GKVDRV_TEXT], bdf[DRV_BDF];
	int ret;

	add_int(o, "provider", info->id);
	add_string(o, "function", drv_bdf(info->domain, info->bdf, bdf));
	add_string(o, "kind", info->kind == GKVDRV_CARVEOUT ? "carve-out" : "foreign");
	if (info->kind != GKVDRV_CARVEOUT) {
		json_object_object_add(o, "reached", NULL);
		add_string(o, "why", "nothing is allocated in foreign memory: ask with --pid of a "
				     "process that has imported from it");
		return o;
	}
	ret = drv_ioctl(gkv, GKVDRV_ALLOC, &a, text);
	if (ret) {
		json_object_object_add(o, "reached", NULL);
		add_string(o, "why", text);
		return o;
	}
	add_reach(o, a.fd, p);
	close(a.fd);
	return o;
}

int region_of_carveouts(struct ctl *c, const char *disk)
{
	struct gkvdrv_info info = { .head.size = sizeof(info), .abi = GKVDRV_ABI };
	struct gkvdrv_provider prov = { .head.size = sizeof(prov) };
	struct json_object *doc, *list;
	char text[GKVDRV_TEXT];
	struct probe p;
	int gkv, ret = drv_open(c, &gkv);

	if (!ret && (ret = open_disk(c, disk, &p)))
		close(gkv);
	if (ret)
		return ret;
	if (drv_ioctl(gkv, GKVDRV_INFO, &info, text)) {
		ret = ctl_fail(c, "%s", text);
		goto out;
	}
	list = json_object_new_array();
	while (!drv_ioctl(gkv, GKVDRV_PROVIDER_INFO, &prov, text)) {
		json_object_array_add(list, ask_provider(gkv, &prov, info.page_size, &p));
		prov = (struct gkvdrv_provider){ .head.size = sizeof(prov), .id = prov.id + 1 };
	}
	if (!json_object_array_length(list)) {
		ret = ctl_fail(c, "there is no provider of GPU memory: see gkvctl provider --help");
		json_object_put(list);
		goto out;
	}
	doc = json_object_new_object();
	add_string(doc, "disk", disk);
	json_object_object_add(doc, "providers", list);
	if (c->json)
		view_json(doc);
	else if (!c->quiet)
		view_reach(list, disk, "provider", "provider");
	json_object_put(doc);
out:
	close(gkv);
	if (ret)
		p.refused = 0;
	return close_disk(c, disk, &p) || ret ? EX_FAILED : EX_DONE;
}
