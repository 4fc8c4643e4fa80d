/* SPDX-License-Identifier: MIT */
/*
 * The bare ring: the cache lines that a queue pair's client and daemon must
 * exchange, and nothing else. The doorbells sit beside each other, as NVMe's do
 * at the smallest stride.
 */
#include "floor.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hist.h"
#include "util.h"

#define STOP UINT32_MAX /* doorbell value that ends the server */

struct sqe {
	uint64_t dw[8];
};

struct cqe {
	uint64_t lo;
	uint64_t hi; /* sqhd, cid, status: bit 48 is the phase */
};
#define PHASE (1ull << 48)

struct ring {
	struct {
		uint32_t sq_tail;
		uint32_t cq_head;
	} db __attribute__((aligned(64)));
	struct cqe cq[4096] __attribute__((aligned(64)));
	struct sqe sq[4096] __attribute__((aligned(64)));
	uint8_t data[] __attribute__((aligned(4096))); /* a value's room per entry */
};

struct ctx {
	struct ring *ring;
	size_t map_len;
	uint32_t depth;
	uint32_t copy_len;
	uint8_t *values; /* server's own copy source */
	uint64_t n_values;
	/* Client side. */
	uint32_t tail;
	uint32_t head;
	uint32_t outstanding;
	uint64_t phase;
	uint64_t next_value;
};

static void *shared(size_t len)
{
	int fd = memfd_create("gkv-bench-floor", MFD_CLOEXEC);
	void *p;

	if (fd < 0 || ftruncate(fd, (off_t)len))
		die("floor: memfd of %zu bytes: %s", len, strerror(errno));
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED)
		die("floor: mmap of %zu bytes: %s", len, strerror(errno));
	close(fd);
	return p;
}

static void __attribute__((noreturn)) serve(struct ctx *c)
{
	struct ring *r = c->ring;
	uint32_t head = 0, cq_tail = 0, cq_head = 0, idle = 0;
	uint64_t phase = PHASE;

	for (;;) {
		uint32_t tail = __atomic_load_n(&r->db.sq_tail, __ATOMIC_ACQUIRE);

		if (tail == head) {
			cpu_relax();
			/* Two processes may share one processor here. */
			if (++idle > 100000) {
				idle = 0;
				sched_yield();
			}
			continue;
		}
		if (tail == STOP)
			_exit(0);
		idle = 0;
		while (head != tail) {
			struct sqe e;
			uint32_t next = cq_tail + 1 == c->depth ? 0 : cq_tail + 1;

			while (next == cq_head)
				cq_head = __atomic_load_n(&r->db.cq_head, __ATOMIC_ACQUIRE);
			/* As a daemon must: one private copy before any field is looked at. */
			e = r->sq[head];
			__asm__ volatile("" : "+m"(e));
			if (c->copy_len)
				memcpy(r->data + e.dw[3], c->values + e.dw[4] * c->copy_len,
				       c->copy_len);
			head = head + 1 == c->depth ? 0 : head + 1;
			r->cq[cq_tail].lo = c->copy_len;
			__atomic_store_n(&r->cq[cq_tail].hi,
					 head | (e.dw[0] >> 16 & 0xffff) << 32 | phase,
					 __ATOMIC_RELEASE);
			cq_tail = next;
			if (!cq_tail)
				phase ^= PHASE;
		}
	}
}

static void submit(struct ctx *c, uint32_t n)
{
	struct ring *r = c->ring;

	c->outstanding += n;
	while (n--) {
		struct sqe *e = &r->sq[c->tail];

		e->dw[0] = 0x02 | (uint64_t)c->tail << 16 | 1ull << 32;
		e->dw[1] = c->next_value;
		e->dw[2] = 0;
		e->dw[3] = (uint64_t)c->tail * c->copy_len;
		e->dw[4] = c->next_value;
		e->dw[5] = c->copy_len;
		e->dw[6] = 16;
		e->dw[7] = 0;
		if (++c->next_value == c->n_values)
			c->next_value = 0;
		c->tail = c->tail + 1 == c->depth ? 0 : c->tail + 1;
	}
	__atomic_store_n(&r->db.sq_tail, c->tail, __ATOMIC_RELEASE);
}

static uint32_t reap(struct ctx *c)
{
	struct ring *r = c->ring;
	uint32_t n = 0;

	for (;;) {
		uint64_t hi = __atomic_load_n(&r->cq[c->head].hi, __ATOMIC_ACQUIRE);

		if ((hi & PHASE) != c->phase)
			break;
		__asm__ volatile("" ::"r"(r->cq[c->head].lo));
		n++;
		if (++c->head == c->depth) {
			c->head = 0;
			c->phase ^= PHASE;
		}
	}
	if (n) {
		c->outstanding -= n;
		__atomic_store_n(&r->db.cq_head, c->head, __ATOMIC_RELEASE);
	}
	return n;
}

static void measure_qd1(struct ctx *c, uint64_t time_ns, struct hist *h)
{
	uint64_t end = now_ns() + time_ns, warm = 500;

	do {
		for (uint32_t i = 0; i < 100; i++) {
			uint64_t t = ticks();

			submit(c, 1);
			while (!reap(c))
				cpu_relax();
			t = ticks() - t;
			if (warm)
				warm--;
			else
				hist_add(h, t);
		}
	} while (now_ns() < end || !h->count);
}

static double measure_deep(struct ctx *c, uint64_t time_ns)
{
	uint64_t start = now_ns(), end = start + time_ns, now, done = 0;

	do {
		for (uint32_t i = 0; i < 200; i++) {
			/* At most half a ring a doorbell, so that both sides always have work. */
			uint32_t room = c->depth - 1 - c->outstanding;

			if (room > c->depth / 2)
				room = c->depth / 2;
			if (room)
				submit(c, room);
			done += reap(c);
		}
		now = now_ns();
	} while (now < end);
	while (c->outstanding)
		done += reap(c);
	return (double)done * 1e9 / (double)(now_ns() - start);
}

void floor_ring(const struct floor_opts *o, uint32_t copy_len, struct floor_report *report)
{
	const char *suffix = copy_len ? " + 4 KiB copy" : "";
	struct ctx c = { .depth = o->depth, .copy_len = copy_len, .phase = PHASE };
	struct floor_result *res;
	struct hist *h = malloc(sizeof(*h));
	double rate = ticks_per_ns();
	pid_t parent = getpid(), pid;
	int status;

	if (!h)
		die("out of memory");
	hist_init(h);
	c.n_values = copy_len ? o->working_set / copy_len : 1;
	c.map_len = sizeof(struct ring) + (size_t)c.depth * copy_len;
	c.ring = shared(c.map_len);
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		die("floor: fork: %s", strerror(errno));
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		pin_to(o->cpu_server);
		if (copy_len) {
			c.values = aligned_alloc(4096, c.n_values * copy_len);
			if (!c.values)
				_exit(1);
			for (uint64_t i = 0; i < c.n_values; i++)
				memset(c.values + i * copy_len, (int)i, copy_len);
		}
		serve(&c);
	}
	pin_to(o->cpu_client);
	measure_qd1(&c, o->time_ns, h);
	res = floor_add(report, "bare ring%s, QD 1", suffix);
	res->p50_ns = (double)hist_quantile(h, 0.5) / rate;
	res->p99_ns = (double)hist_quantile(h, 0.99) / rate;
	res->p999_ns = (double)hist_quantile(h, 0.999) / rate;
	res->per_s = hist_mean(h) > 0 ? 1e9 * rate / hist_mean(h) : 0;
	res->bytes_per_s = res->per_s * copy_len;

	res = floor_add(report, "bare ring%s, deep", suffix);
	res->per_s = measure_deep(&c, o->time_ns);
	res->bytes_per_s = res->per_s * copy_len;

	__atomic_store_n(&c.ring->db.sq_tail, STOP, __ATOMIC_RELEASE);
	waitpid(pid, &status, 0);
	munmap(c.ring, c.map_len);
	free(h);
}

struct pingpong {
	uint64_t there __attribute__((aligned(64)));
	uint64_t back __attribute__((aligned(64)));
};

void floor_pingpong(const struct floor_opts *o, struct floor_report *report)
{
	struct pingpong *p = shared(sizeof(*p));
	struct hist *h = malloc(sizeof(*h));
	struct floor_result *res;
	double rate = ticks_per_ns();
	uint64_t n = 0, end;
	pid_t parent = getpid(), pid;

	if (!h)
		die("out of memory");
	hist_init(h);
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		die("floor: fork: %s", strerror(errno));
	if (!pid) {
		uint64_t seen = 0, v;
		uint32_t idle = 0;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		pin_to(o->cpu_server);
		for (;;) {
			v = __atomic_load_n(&p->there, __ATOMIC_ACQUIRE);
			if (v == UINT64_MAX)
				_exit(0);
			if (v == seen) {
				if (++idle > 1000000) {
					idle = 0;
					sched_yield();
				}
				continue;
			}
			idle = 0;
			seen = v;
			__atomic_store_n(&p->back, v, __ATOMIC_RELEASE);
		}
	}
	pin_to(o->cpu_client);
	end = now_ns() + o->time_ns;
	do {
		for (uint32_t i = 0; i < 100; i++) {
			uint64_t t = ticks();

			__atomic_store_n(&p->there, ++n, __ATOMIC_RELEASE);
			while (__atomic_load_n(&p->back, __ATOMIC_ACQUIRE) != n)
				;
			t = ticks() - t;
			if (n > 500)
				hist_add(h, t);
		}
	} while (now_ns() < end || !h->count);
	__atomic_store_n(&p->there, UINT64_MAX, __ATOMIC_RELEASE);
	waitpid(pid, NULL, 0);
	res = floor_add(report, "cross-core ping-pong");
	res->p50_ns = (double)hist_quantile(h, 0.5) / rate;
	res->p99_ns = (double)hist_quantile(h, 0.99) / rate;
	res->p999_ns = (double)hist_quantile(h, 0.999) / rate;
	munmap(p, sizeof(*p));
	free(h);
}

void floor_memcpy(const struct floor_opts *o, struct floor_report *report)
{
	static const uint64_t sizes[] = { 4096, 1u << 20, 32u << 20 };
	uint64_t set = o->working_set < (64u << 20) ? 64u << 20 : o->working_set;
	uint8_t *src = mmap(NULL, set, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *dst = shared(64u << 20);

	if (src == MAP_FAILED)
		die("floor: mmap of %llu bytes: %s", (unsigned long long)set, strerror(errno));
	memset(src, 1, set);
	memset(dst, 1, 64u << 20);
	pin_to(o->cpu_server);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		/* Small values go to as many places as a deep queue has buffers. */
		uint64_t size = sizes[i], n_dst = size == 4096 ? o->depth : (64u << 20) / size;
		uint64_t n_src = (size == 4096 ? o->working_set : set) / size;
		uint64_t start = now_ns(), now, done = 0;
		struct floor_result *res;
		char text[32];

		do {
			for (uint64_t k = 0; k < (size < 65536 ? 256 : 1); k++, done++) {
				memcpy(dst + done % n_dst * size, src + done % n_src * size, size);
				__asm__ volatile("" ::: "memory");
			}
			now = now_ns();
		} while (now - start < o->time_ns);
		res = floor_add(report, "memcpy %s", human_bytes(text, sizeof(text), (double)size));
		res->per_s = (double)done * 1e9 / (double)(now - start);
		res->bytes_per_s = res->per_s * (double)size;
	}
	munmap(src, set);
	munmap(dst, 64u << 20);
}
