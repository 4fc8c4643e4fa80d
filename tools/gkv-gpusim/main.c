/* SPDX-License-Identifier: MIT */
/* gkv-gpusim: gkv_device.h on a stand-in for a GPU, against a kvbridged. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "options.h"

#define LOCKSTEP_TIMEOUT_NS	600000000000ull

/* A daemon that was just started may need a moment. */
static struct gkv *open_session(const struct options *o)
{
	struct gkv *g;

	for (unsigned int i = 0; gkv_connect(&g, o->socket, 0, 0); i++) {
		if (!o->killer.command || i == 100)
			die(EX_FAILED, "%s", gkv_error());
		usleep(100000);
	}
	return g;
}

static void report(const struct options *o, const struct sim *s, uint64_t ns)
{
	const struct work *w = &o->work;
	const struct gkv_dev_stats *d = &w->q->stats;
	uint64_t all = w->stores + w->retrieves + w->exists + w->lists + w->deletes;

	printf("%u wavefronts of %u lanes, %s%s%s, depth %u, seed %" PRIu64 "\n", w->sim.waves,
	       w->sim.lanes, w->sim.lockstep ? "lockstep" : "threads",
	       w->sim.lockstep ? ", policy " : "",
	       w->sim.lockstep ? sim_policy_names[w->sim.policy] : "", o->depth, w->seed);
	printf("%" PRIu64 " commands in %.3f s: %" PRIu64 " stores, %" PRIu64 " retrieves, %" PRIu64
	       " exists, %" PRIu64 " lists, %" PRIu64 " deletes; %" PRIu64 " bytes verified\n",
	       all, (double)ns / 1e9, w->stores, w->retrieves, w->exists, w->lists, w->deletes,
	       w->bytes / 2);
	printf("%u doorbells, %.1f commands each; %u timeouts, %u late, %u of unknown identifier\n",
	       d->doorbells, d->doorbells ? (double)all / d->doorbells : 0.0, d->timeouts, d->late,
	       d->bad_cid);
	if (w->stopped)
		printf("stopped: %" PRIu64 " commands; the first ended with %u, status %#x\n", w->stopped,
		       w->stop.end, w->stop.status);
	if (o->killer.command)
		printf("%u kills, %u stalls; %" PRIu64 " commands done again\n", o->killer.killed,
		       o->killer.stalled, w->retries);
	if (w->sim.lockstep)
		printf("%" PRIu64 " steps\n", sim_steps(s));
}

static int run(struct options *o)
{
	struct sim *s = sim_new(&o->work.sim);
	uint64_t start = gkv_sim_clock();
	int ret;

	if (!s || work_begin(&o->work))
		die(EX_FAILED, "out of memory");
	if (o->killer.command && killer_begin())
		die(EX_FAILED, "no thread");
	ret = sim_run(s, work_kernel, &o->work);
	killer_end();
	if (ret)
		fprintf(stderr, "gkv-gpusim: %s\n", sim_report(s));
	report(o, s, gkv_sim_clock() - start);
	work_end(&o->work);
	sim_free(s);
	return ret || o->work.q->stats.bad_cid ? EX_FAILED : EX_DONE;
}

/* ---- Whose queue pair it is ---- */

struct mine {
	struct gkv *g;
	struct gkv_qp *qp;
};

/* As a pointer of the device's, which the memory's exporter has given. */
#define DEVICE_POINTER	0x7f4200000000ull

/* Put what @o's mode has in VRAM into the dma-buf; *@used: its bytes before the values. */
static int use_dmabuf(const struct options *o, struct mine *m, struct gkv_qp_opts *qo,
		      struct gkv_mem **mem, size_t *used)
{
	struct gkv_qp_part *const parts[] = { &qo->sq, &qo->cq, &qo->db };
	const size_t len[] = { (size_t)o->depth * 64, (size_t)o->depth * 16, WORK_PAGE };
	int ret = gkv_mem_import(m->g, o->dmabuf, 0, 0, GKV_PROVIDER_ANY, DEVICE_POINTER, mem);

	*used = 0;
	for (unsigned int i = 0; !ret && i < 3; i++) {
		if (!(o->mode & (1u << i)))
			continue;
		parts[i]->mem = *mem;
		/* Doorbells need not begin a page. */
		parts[i]->offset = *used + (i == 2 ? 40 : 0);
		*used += (len[i] + WORK_PAGE - 1) / WORK_PAGE * WORK_PAGE;
	}
	return ret;
}

/* A queue pair and memory of a session of our own. */
static void make(struct options *o, struct mine *m, struct bus_queue *q)
{
	struct gkv_qp_opts qo = { .size = sizeof(qo), .flags = GKV_QP_POLLED, .depth = o->depth,
				  .mode = o->mode };
	struct gkv_ns_info ns = { .size = sizeof(ns) };
	size_t len = work_mem(&o->work), used = 0;
	struct gkv_mem *vram = NULL, *mem = NULL;
	int ret;

	if (o->csum)
		qo.flags |= GKV_QP_CSUM;
	if (o->killer.command && killer_start(&o->killer))
		die(EX_FAILED, "%s: %m", o->killer.command);
	m->g = open_session(o);
	ret = gkv_ns_open(m->g, o->ns, 0, &ns);
	if (!ret && o->dmabuf >= 0)
		ret = use_dmabuf(o, m, &qo, &vram, &used);
	if (!ret && !(o->mode & GKV_MODE_DATA))
		ret = gkv_mem_alloc(m->g, len, &mem);
	else if (!ret && !vram)
		ret = gkv_mem_alloc_vram(m->g, GKV_PROVIDER_ANY, len, &mem);
	if (!mem)
		mem = vram;
	else
		used = 0;
	q->desc.size = sizeof(q->desc);
	if (ret || gkv_qp_create(m->g, &qo, &m->qp) || gkv_qp_device(m->qp, &q->desc))
		die(EX_FAILED, "%s", gkv_error());
	q->nsid = ns.nsid;
	q->mem = (uint8_t *)gkv_mem_addr(mem) + used;
	q->iova = gkv_mem_iova(mem) + used;
	q->mem_len = gkv_mem_len(mem) < used ? 0 : gkv_mem_len(mem) - used;
	if (q->mem_len < len)
		die(EX_FAILED, "%zu bytes of memory are needed, and the dma-buf has %zu", len,
		    q->mem_len);
}

static void give_back(struct mine *m)
{
	/* What timed out is the daemon's until then. */
	if (gkv_qp_destroy(m->qp))
		die(EX_FAILED, "%s", gkv_error());
	gkv_close(m->g);
	killer_stop();
}

/* For another machine's lanes, until the input ends. */
static int offer(const struct bus_queue *q)
{
	uint64_t at;

	if (bus_offer(q, &at))
		die(EX_FAILED, "%s", bus_error());
	printf("%#" PRIx64 "\n", at);
	fflush(stdout);
	while (getchar() != EOF)
		;
	return EX_DONE;
}

static int use(struct options *o, struct bus_queue *q)
{
	struct work *w = &o->work;
	int ret;

	if (work_mem(w) > q->mem_len)
		die(EX_FAILED, "%zu bytes of memory are needed, and %zu offered: give both sides "
			       "the same options", work_mem(w), q->mem_len);
	/* In lockstep all lanes together have the time of one. */
	if (w->sim.lockstep)
		q->desc.timeout_ns = LOCKSTEP_TIMEOUT_NS;
	w->q = aligned_alloc(GKVD_LINE, gkv_dev_queue_size(q->desc.depth));
	if (!w->q || gkv_dev_queue_init(w->q, &q->desc))
		die(EX_FAILED, "out of memory, or no queue pair of depth %u", q->desc.depth);
	w->mem = q->mem;
	w->iova = q->iova;
	w->nsid = q->nsid;
	w->sim.seed = w->seed;
	w->sim.real_time = w->sim.lockstep;
	ret = run(o);
	free(w->q);
	return ret;
}

static struct options o = {
	.depth = 128,
	.dmabuf = -1,
	.killer.every_ns = 200000000,
	.work = { .sim = { .waves = 4, .lanes = 32 }, .rounds = 4, .go_on = killer_busy,
		  .value = 4096, .seed = 1 },
};

/* The lanes finish their round. */
static void on_signal(int sig)
{
	(void)sig;
	o.work.ended = 1;
}

int main(int argc, char **argv)
{
	struct bus_queue q = { .nsid = 0 };
	struct mine mine;
	int ret;

	options_parse(&o, argc, argv);
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	if (o.attach) {
		if (bus_attach(o.files, o.nfiles, o.attach, &q))
			die(EX_FAILED, "%s", bus_error());
		o.depth = q.desc.depth;
		return use(&o, &q);
	}
	make(&o, &mine, &q);
	ret = o.offer ? offer(&q) : use(&o, &q);
	give_back(&mine);
	return ret;
}
