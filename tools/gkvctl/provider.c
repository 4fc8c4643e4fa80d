/* SPDX-License-Identifier: MIT */
/*
 * provider: spans of BARs that serve as VRAM.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drv.h"

/* What takes the device: the number of objects, and for root the bus address. */
static void add_more(struct json_object *o, int fd, uint32_t id)
{
	struct gkvdrv_provider p = { .head.size = sizeof(p), .id = id };
	char text[GKVDRV_TEXT];

	if (drv_ioctl(fd, GKVDRV_PROVIDER_INFO, &p, text) || p.id != id)
		return;
	add_int(o, "objects", p.nr_objects);
	if (p.bus)
		add_int(o, "bus", p.bus);
}

/* From sysfs, which everybody may read; NULL when it is gone already. */
static struct json_object *provider(uint32_t id)
{
	static const char *const texts[] = { "kind", "function" };
	static const char *const numbers[] = { "bar", "offset", "size", "used", "available" };
	struct json_object *o = json_object_new_object();
	char path[128], text[64];
	uint64_t v;

	add_int(o, "id", id);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		snprintf(path, sizeof(path), DRV_SYSFS "/providers/%u/%s", id, texts[i]);
		if (drv_read(path, text, sizeof(text)))
			goto gone;
		json_object_object_add(o, texts[i], json_object_new_string(text));
	}
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		snprintf(path, sizeof(path), "providers/%u/%s", id, numbers[i]);
		if (drv_attr(path, &v))
			goto gone;
		add_int(o, numbers[i], v);
	}
	return o;
gone:
	json_object_put(o);
	return NULL;
}

static int by_id(const void *a, const void *b)
{
	struct json_object *x = NULL, *y = NULL;
	uint64_t p, q;

	json_object_object_get_ex(*(struct json_object *const *)a, "id", &x);
	json_object_object_get_ex(*(struct json_object *const *)b, "id", &y);
	p = json_object_get_uint64(x);
	q = json_object_get_uint64(y);
	return p < q ? -1 : p > q;
}

static int list_run(struct ctl *c)
{
	static const struct view_col cols[] = {
		{ "id", "ID", VIEW_PLAIN },	{ "kind", "KIND", VIEW_PLAIN },
		{ "function", "FUNCTION", VIEW_PLAIN }, { "bar", "BAR", VIEW_PLAIN },
		{ "offset", "OFFSET", VIEW_HEX }, { "size", "SIZE", VIEW_BYTES },
		{ "used", "USED", VIEW_BYTES }, { "available", "AVAILABLE", VIEW_BYTES },
		{ "objects", "OBJECTS", VIEW_PLAIN }, { "bus", "BUS ADDRESS", VIEW_HEX },
	};
	struct json_object *list;
	struct dirent *e;
	DIR *dir;
	int fd;

	if (!drv_loaded())
		return drv_missing(c);
	dir = opendir(DRV_SYSFS "/providers");
	if (!dir)
		return ctl_fail(c, DRV_SYSFS "/providers: %s", strerror(errno));
	fd = open(GKVDRV_PATH, O_RDWR | O_CLOEXEC);
	list = json_object_new_array();
	while ((e = readdir(dir))) {
		uint32_t id = (uint32_t)strtoul(e->d_name, NULL, 10);
		struct json_object *o = id ? provider(id) : NULL;

		if (o && fd >= 0)
			add_more(o, fd, id);
		if (o)
			json_object_array_add(list, o);
	}
	closedir(dir);
	if (fd >= 0)
		close(fd);
	json_object_array_sort(list, by_id);
	if (c->json)
		view_json(list);
	else if (!c->quiet && json_object_array_length(list))
		view_table(list, cols, sizeof(cols) / sizeof(cols[0]), "");
	else if (!c->quiet)
		printf("there is no provider of GPU memory\n");
	json_object_put(list);
	return EX_DONE;
}

/* Is the span all of its BAR, which is a file in sysfs? */
static bool is_whole_bar(const struct gkvdrv_provider *p)
{
	char path[128], bdf[DRV_BDF];
	struct stat sb;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource%u",
		 drv_bdf(p->domain, p->bdf, bdf), p->bar);
	return !stat(path, &sb) && !p->offset && p->len == (uint64_t)sb.st_size;
}

/* @note: what should be known about it, or NULL. */
static int done(const struct ctl *c, uint32_t id, const char *what, const char *note)
{
	struct json_object *doc = json_object_new_object();

	add_int(doc, "id", id);
	json_object_object_add(doc, "state", json_object_new_string(what));
	if (note)
		json_object_object_add(doc, "note", json_object_new_string(note));
	if (c->json)
		view_json(doc);
	else if (!c->quiet)
		printf("provider %u %s\n%s%s%s", id, what, note ? "note: " : "", note ? note : "",
		       note ? "\n" : "");
	json_object_put(doc);
	return EX_DONE;
}

/* One command on a provider; prints what went wrong. */
static int command(const struct ctl *c, unsigned long cmd, struct gkvdrv_provider *p)
{
	char text[GKVDRV_TEXT];
	int fd, ret = drv_open(c, &fd);

	if (ret)
		return ret;
	ret = drv_ioctl(fd, cmd, p, text);
	close(fd);
	if (ret == -EPERM)
		return ctl_fail(c, "it takes root (CAP_SYS_ADMIN in the first user namespace)");
	if (ret)
		return ctl_fail(c, "%s (%s)", text, p->head.reason ? drv_why(p->head.reason) :
				strerrorname_np(-ret));
	return EX_DONE;
}

static int add_run(struct ctl *c, char **argv)
{
	struct gkvdrv_provider p = { .head.size = sizeof(p) };
	uint64_t bar, offset, len;
	int ret;

	if (drv_parse_bdf(argv[0], &p.domain, &p.bdf))
		return ctl_usage(c, "\"%s\" is no PCI function such as 0000:03:00.0", argv[0]);
	if (parse_u64(argv[1], &bar) || bar > 5)
		return ctl_usage(c, "\"%s\" is no BAR, 0 to 5", argv[1]);
	if (parse_u64(argv[2], &offset))
		return ctl_usage(c, "\"%s\" is no offset", argv[2]);
	if (parse_u64(argv[3], &len) || !len)
		return ctl_usage(c, "\"%s\" is no length", argv[3]);
	p.bar = (uint32_t)bar;
	p.offset = offset;
	p.len = len;
	ret = command(c, GKVDRV_PROVIDER_ADD, &p);
	/* Peer memory of RDMA may not take what has page descriptors. */
	return ret ? ret : done(c, p.id, "added", is_whole_bar(&p) ?
				"this is the whole BAR: RDMA's peer memory (nvidia_peermem and the "
				"like) may refuse all of it; a slice leaves room for both" : NULL);
}

static int del_run(struct ctl *c, char **argv)
{
	struct gkvdrv_provider p = { .head.size = sizeof(p) };
	uint64_t id;
	int ret;

	if (parse_u64(argv[0], &id) || !id || id > UINT32_MAX)
		return ctl_usage(c, "\"%s\" is no identifier of a provider", argv[0]);
	p.id = (uint32_t)id;
	ret = command(c, GKVDRV_PROVIDER_DEL, &p);
	return ret ? ret : done(c, p.id, "withdrawn", NULL);
}

static int provider_run(struct ctl *c, int argc, char **argv)
{
	const char *what = argc ? argv[0] : "list";

	if (!strcmp(what, "list") && argc <= 1)
		return list_run(c);
	if (!strcmp(what, "add") && argc == 5)
		return add_run(c, argv + 1);
	if (!strcmp(what, "del") && argc == 2)
		return del_run(c, argv + 1);
	return ctl_usage(c, "usage: gkvctl provider [list | add BDF BAR OFFSET LENGTH | del ID]");
}

const struct command cmd_provider = {
	.name = "provider",
	.args = "[list | add BDF BAR OFFSET LENGTH | del ID]",
	.summary = "Show and change the kernel module's providers of GPU memory",
	.help = "  list (default)          each with its function, span and use\n"
		"  add BDF BAR OFFSET LENGTH   register a span of a BAR that another driver owns, for\n"
		"                          its dma-bufs; multiples of 2m, suffixes k, m, g\n"
		"  del ID                  withdraw such a span; what was imported is revoked\n"
		"A carve-out comes and goes with the binding of its function to gkvdrv.\n",
	.max_args = 5,
	.run = provider_run,
};
