/* SPDX-License-Identifier: MIT */
/* Beside the machine: its memory, mapped as a described queue pair needs it. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bus_priv.h"

struct open_file {
	int fd;
	uint64_t at, len;
};

struct bus {
	struct open_file files[BUS_FILES_MAX];
	uint32_t n;
	struct bus_page page;		/* of the stream, a copy */
	uint32_t used;			/* of its bytes */
	uint64_t pages;			/* seen so far */
};

typedef unsigned long long ull;

/* ---- The bus ---- */

/* The file that has @len bytes at @at, or NULL; *@off: where in it. */
static const struct open_file *behind(const struct bus *b, uint64_t at, uint64_t len,
				      uint64_t *off)
{
	for (uint32_t i = 0; i < b->n; i++) {
		const struct open_file *f = &b->files[i];

		if (at >= f->at && at - f->at < f->len && len <= f->len - (at - f->at)) {
			*off = at - f->at;
			return f;
		}
	}
	bus_fail("nothing known is at %#llx to %#llx of the bus", (ull)at, (ull)(at + len));
	return NULL;
}

static int open_files(struct bus *b, const struct bus_file *files, uint32_t n)
{
	for (; b->n < n; b->n++) {
		struct open_file *f = &b->files[b->n];
		struct stat st;

		f->fd = open(files[b->n].path, O_RDWR | O_CLOEXEC);
		if (f->fd < 0 || fstat(f->fd, &st)) {
			bus_fail("%s: %m", files[b->n].path);
			b->n += f->fd >= 0;
			return -1;
		}
		f->at = files[b->n].at;
		f->len = (uint64_t)st.st_size;
	}
	return 0;
}

static void close_files(struct bus *b)
{
	while (b->n)
		close(b->files[--b->n].fd);
}

/* ---- The stream ---- */

static int next_page(struct bus *b, uint64_t at)
{
	const struct open_file *f;
	uint64_t off;

	f = behind(b, at, BUS_PAGE, &off);
	if (!f)
		return -1;
	if (pread(f->fd, &b->page, BUS_PAGE, (off_t)off) != BUS_PAGE)
		return bus_fail("cannot read the description: %m");
	if (b->page.magic != BUS_MAGIC || b->page.len > sizeof(b->page.data))
		return bus_fail("no description of a queue pair is at %#llx", (ull)at);
	/* A chain that goes in circles ends here. */
	if (++b->pages > BUS_RUNS_MAX)
		return bus_fail("the description does not end");
	b->used = 0;
	return 0;
}

static int get(struct bus *b, void *data, size_t len)
{
	uint8_t *to = data;

	while (len) {
		size_t n = b->page.len - b->used < len ? b->page.len - b->used : len;

		if (!n) {
			if (!b->page.next)
				return bus_fail("the description is cut short");
			if (next_page(b, b->page.next))
				return -1;
			continue;
		}
		memcpy(to, b->page.data + b->used, n);
		b->used += (uint32_t)n;
		to += n;
		len -= n;
	}
	return 0;
}

/* ---- Parts ---- */

static int map_run(const struct bus *b, uint8_t *to, const struct bus_run *run)
{
	const struct open_file *f;
	uint64_t off;

	f = behind(b, run->at, run->len, &off);
	if (!f)
		return -1;
	if (mmap(to, run->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, f->fd, (off_t)off) ==
	    MAP_FAILED)
		return bus_fail("cannot map %#llx of the bus: %m", (ull)run->at);
	return 0;
}

/* Map what the next part of the description says, which must have @len bytes at @addr. */
static int map_part(struct bus *b, uint64_t addr, uint64_t len, void **to)
{
	struct bus_part part;
	uint64_t done = 0;
	uint8_t *base;

	if (get(b, &part, sizeof(part)))
		return -1;
	if (part.len % BUS_PAGE || addr < part.addr || addr - part.addr > part.len ||
	    len > part.len - (addr - part.addr))
		return bus_fail("the description contradicts itself at %#llx", (ull)addr);
	base = mmap(NULL, part.len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return bus_fail("%llu bytes of address space: %m", (ull)part.len);
	for (uint64_t i = 0; i < part.nruns; i++) {
		struct bus_run run;

		if (get(b, &run, sizeof(run)))
			return -1;
		if (!run.len || run.len % BUS_PAGE || run.at % BUS_PAGE || run.len > part.len - done)
			return bus_fail("a run of %#llx bytes at %#llx makes no sense", (ull)run.len,
					(ull)run.at);
		if (map_run(b, base + done, &run))
			return -1;
		done += run.len;
	}
	if (done != part.len)
		return bus_fail("%llu bytes of %llu are described", (ull)done, (ull)part.len);
	*to = base + (addr - part.addr);
	return 0;
}

static int attach(struct bus *b, uint64_t at, struct bus_queue *q)
{
	uint64_t parts[BUS_PARTS][2];
	void *to[BUS_PARTS] = { NULL };
	struct bus_head head;

	if (next_page(b, at) || get(b, &head, sizeof(head)))
		return -1;
	bus_parts(&head, parts);
	for (unsigned int i = 0; i < BUS_PARTS; i++) {
		if (map_part(b, parts[i][0], parts[i][1], &to[i]))
			return -1;
	}
	q->desc = (struct gkv_dev_desc){
		.size = sizeof(q->desc), .depth = head.depth, .flags = head.flags,
		.page = head.page, .timeout_ns = head.timeout_ns, .ticks_per_us = 1000,
		.sq = to[0], .cq = to[1], .sq_db = to[2], .cq_db = to[3], .stopped = to[4],
		.ctl = to[5],
	};
	q->nsid = head.nsid;
	q->mem = to[6];
	q->iova = head.iova;
	q->mem_len = head.mem_len;
	return 0;
}

int bus_attach(const struct bus_file *files, uint32_t n, uint64_t at, struct bus_queue *q)
{
	struct bus b = { .n = 0 };
	int ret;

	if (n > BUS_FILES_MAX)
		return bus_fail("%u files; at most %u", n, BUS_FILES_MAX);
	ret = open_files(&b, files, n);
	if (!ret)
		ret = attach(&b, at, q);
	close_files(&b);
	return ret;
}
