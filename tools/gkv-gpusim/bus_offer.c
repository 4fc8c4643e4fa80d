/* SPDX-License-Identifier: MIT */
/* In the machine: where on the bus a queue pair is, as the page tables say. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bus_priv.h"

/* Of an entry of /proc/self/pagemap. */
#define PRESENT		(1ull << 63)
#define PFN_MASK	((1ull << 55) - 1)

static char error[256];

int bus_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, sizeof(error), fmt, ap);
	va_end(ap);
	return -1;
}

const char *bus_error(void)
{
	return error;
}

/* ---- Addresses ---- */

/* Of the page at @addr of this process. */
static int on_bus(int pagemap, uint64_t addr, uint64_t *at)
{
	uint64_t entry;

	/* Memory of /dev/gkv comes when it is first used. */
	(void)*(volatile uint8_t *)(uintptr_t)addr;
	if (pread(pagemap, &entry, sizeof(entry), (off_t)(addr / BUS_PAGE * sizeof(entry))) !=
	    (ssize_t)sizeof(entry))
		return bus_fail("pagemap: %m");
	if (!(entry & PRESENT) || !(entry & PFN_MASK))
		return bus_fail("pagemap does not say where %#llx is (CAP_SYS_ADMIN?)",
				(unsigned long long)addr);
	*at = (entry & PFN_MASK) * BUS_PAGE;
	return 0;
}

/* ---- The stream ---- */

struct stream {
	int pagemap;
	struct bus_page *first, *last;
};

static struct bus_page *add_page(struct stream *s, uint64_t *at)
{
	struct bus_page *p = mmap(NULL, BUS_PAGE, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED || mlock(p, BUS_PAGE)) {
		bus_fail("memory for the description: %m");
		return NULL;
	}
	p->magic = BUS_MAGIC;
	if (on_bus(s->pagemap, (uintptr_t)p, at))
		return NULL;
	if (s->last)
		s->last->next = *at;
	else
		s->first = p;
	s->last = p;
	return p;
}

static int put(struct stream *s, const void *data, size_t len)
{
	const uint8_t *from = data;
	uint64_t at;

	while (len) {
		struct bus_page *p = s->last;
		size_t n;

		if (p->len == sizeof(p->data)) {
			p = add_page(s, &at);
			if (!p)
				return -1;
		}
		n = sizeof(p->data) - p->len < len ? sizeof(p->data) - p->len : len;
		memcpy(p->data + p->len, from, n);
		p->len += (uint32_t)n;
		from += n;
		len -= n;
	}
	return 0;
}

/* The runs of @part, at most one for each page. */
static int find_runs(const struct stream *s, struct bus_part *part, struct bus_run *runs)
{
	for (uint64_t done = 0; done < part->len; done += BUS_PAGE) {
		struct bus_run *last = runs + part->nruns - 1;
		uint64_t at;

		if (on_bus(s->pagemap, part->addr + done, &at))
			return -1;
		if (part->nruns && last->at + last->len == at)
			last->len += BUS_PAGE;
		else
			runs[part->nruns++] = (struct bus_run){ at, BUS_PAGE };
	}
	return 0;
}

static int put_part(struct stream *s, uint64_t addr, uint64_t len)
{
	uint64_t end = (addr + len + BUS_PAGE - 1) & -(uint64_t)BUS_PAGE;
	struct bus_part part = { .addr = addr & -(uint64_t)BUS_PAGE };
	struct bus_run *runs;
	int ret;

	part.len = end - part.addr;
	/*
	 * No page moves, is swapped out, or is given back. Those of VRAM cannot be locked, which the
	 * kernel says with EREMOTEIO, and stay where they are.
	 */
	if (mlock((void *)(uintptr_t)part.addr, part.len) && errno != EREMOTEIO)
		return bus_fail("cannot lock %llu bytes: %m", (unsigned long long)part.len);
	runs = calloc(part.len / BUS_PAGE, sizeof(*runs));
	if (!runs)
		return bus_fail("out of memory");
	ret = find_runs(s, &part, runs);
	if (!ret)
		ret = put(s, &part, sizeof(part));
	if (!ret)
		ret = put(s, runs, part.nruns * sizeof(*runs));
	free(runs);
	return ret;
}

static int describe(struct stream *s, const struct bus_queue *q, uint64_t *at)
{
	const struct gkv_dev_desc *d = &q->desc;
	const struct bus_head head = {
		.depth = d->depth, .flags = d->flags, .page = d->page, .nsid = q->nsid,
		.timeout_ns = d->timeout_ns,
		.sq = (uintptr_t)d->sq, .cq = (uintptr_t)d->cq,
		.sq_db = (uintptr_t)d->sq_db, .cq_db = (uintptr_t)d->cq_db,
		.stopped = (uintptr_t)d->stopped, .ctl = (uintptr_t)d->ctl,
		.mem = (uintptr_t)q->mem, .iova = q->iova, .mem_len = q->mem_len,
	};
	uint64_t parts[BUS_PARTS][2];
	int ret;

	if (!add_page(s, at))
		return -1;
	ret = put(s, &head, sizeof(head));
	bus_parts(&head, parts);
	for (unsigned int i = 0; !ret && i < BUS_PARTS; i++)
		ret = put_part(s, parts[i][0], parts[i][1]);
	return ret;
}

int bus_offer(const struct bus_queue *q, uint64_t *at)
{
	struct stream s = { .pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC) };
	int ret;

	if (s.pagemap < 0)
		return bus_fail("/proc/self/pagemap: %m");
	if (sysconf(_SC_PAGESIZE) != BUS_PAGE)
		ret = bus_fail("pages of %ld bytes; only those of %u are known",
			       sysconf(_SC_PAGESIZE), BUS_PAGE);
	else
		ret = describe(&s, q, at);
	close(s.pagemap);
	return ret;
}
