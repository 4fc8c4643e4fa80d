/* SPDX-License-Identifier: MIT */
/* Sessions: connecting, the hello, limits, namespaces, closing. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "impl.h"

#define DEFAULT_QPS	64u
#define GUESS_DSTRD	4u	/* doorbells a cache line apart; the hello may say otherwise */
#define HELLO_TIMEOUT_NS (30 * NSEC_PER_SEC)

size_t gkvi_page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* A memfd of @len zero bytes that can be neither shrunk nor grown; or a negative errno. */
int gkvi_memfd(const char *name, size_t len)
{
	int fd, ret;

	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return gkvi_err(-errno, "cannot make a memfd: %s", strerror(errno));
	if (ftruncate(fd, (off_t)len) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
		ret = -errno;
		close(fd);
		return gkvi_err(ret, "cannot size and seal a memfd of %zu bytes: %s", len,
				strerror(-ret));
	}
	return fd;
}

static void doorbells_free(struct gkv *g)
{
	if (g->db)
		munmap(g->db, g->db_len);
	if (g->db_fd >= 0)
		close(g->db_fd);
	g->db = NULL;
	g->db_fd = -1;
	g->db_len = 0;
}

static int doorbells_alloc(struct gkv *g, uint32_t max_qps, uint32_t dstrd)
{
	size_t page = gkvi_page_size();
	int ret;

	g->db_len = (GKV_DB_LEN((size_t)max_qps, dstrd) + page - 1) & ~(page - 1);
	g->db_fd = gkvi_memfd("gkv-doorbells", g->db_len);
	if (g->db_fd < 0)
		return g->db_fd;
	g->db = mmap(NULL, g->db_len, PROT_READ | PROT_WRITE, MAP_SHARED, g->db_fd, 0);
	if (g->db == MAP_FAILED) {
		ret = -errno;
		g->db = NULL;
		return gkvi_err(ret, "cannot map %zu bytes of doorbells: %s", g->db_len,
				strerror(-ret));
	}
	return 0;
}

/*
 * Put the reactor state page of @fd where the old one is. The data path may be
 * reading it: the mapping changes under it in one step.
 */
static int map_states(struct gkv *g, int fd, uint32_t reactors)
{
	size_t len = (size_t)reactors * sizeof(struct gkv_reactor_state);
	struct stat st;

	if (!reactors || len > STATES_RESERVE)
		return gkvi_err(-EPROTO,
				"kvbridged reports %u reactors, the library takes 1 to %zu",
				reactors, STATES_RESERVE / sizeof(struct gkv_reactor_state));
	if (fstat(fd, &st))
		return gkvi_err(-errno, "reactor state page: %s", strerror(errno));
	if (st.st_size < (off_t)len)
		return gkvi_err(-EPROTO, "kvbridged sent a reactor state page of %lld bytes for %u "
					 "reactors", (long long)st.st_size, reactors);
	if (mmap(g->states, len, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		return gkvi_err(-errno, "cannot map the reactor state page: %s", strerror(errno));
	return 0;
}

/*
 * Say hello on @sock and take over the daemon's limits and reactor state page.
 * Caller holds g->lock.
 */
int gkvi_hello(struct gkv *g, int sock)
{
	bool control = g->flags & GKV_CONNECT_CONTROL;
	struct gkv_msg_hello_reply r;
	struct gkv_msg_hello m;
	uint32_t page, dstrd;
	int fd = -1, ret;

	gkvi_hdr(&m.hdr, GKV_MSG_HELLO, sizeof(m));
	m.version_min = htole16(GKV_CTL_VERSION);
	m.version_max = htole16(GKV_CTL_VERSION);
	m.features = htole64(GKV_FEATURE_CSUM | GKV_FEATURE_RESUME | GKV_FEATURE_VRAM);
	memcpy(m.session, g->session, sizeof(m.session));
	m.db_len = htole64(g->db_len);
	strncpy(m.name, program_invocation_short_name, sizeof(m.name) - 1);

	ret = gkvi_exchange(g, sock, &m.hdr, sizeof(m), &g->db_fd, control ? 0 : 1, &r, sizeof(r),
			    &fd, control ? -1 : 1, HELLO_TIMEOUT_NS);
	if (ret)
		return ret;
	page = le32toh(r.page_size);
	dstrd = le16toh(r.dstrd);
	if (le16toh(r.version) != GKV_CTL_VERSION)
		ret = gkvi_err(-EPROTO, "kvbridged speaks control version %u, the library %u",
			       le16toh(r.version), GKV_CTL_VERSION);
	else if (page < 4096 || page > 65536 || (page & (page - 1)) || dstrd > 15)
		ret = gkvi_err(-EPROTO, "kvbridged reports pages of %u bytes and a doorbell stride "
					"of %u", page, dstrd);
	else if (!control)
		ret = map_states(g, fd, le32toh(r.reactors));
	if (fd >= 0)
		close(fd);
	if (ret)
		return ret;
	g->hello = r;
	store_relaxed(&g->max_deadline_ns, le64toh(r.max_deadline_ns));
	g->page_size = page;
	g->dstrd = dstrd;
	return 0;
}

/* One connection attempt with the doorbells at hand. */
static int try_connect(struct gkv *g)
{
	uint64_t until = gkvi_now() + 5 * NSEC_PER_SEC;
	int fd, ret;

	/* A full backlog is a busy daemon, not a missing one. */
	while ((fd = gkvi_socket(&g->addr)) == -EAGAIN && gkvi_now() < until)
		usleep(2000);
	if (fd < 0)
		return fd;
	ret = gkvi_hello(g, fd);
	if (ret) {
		close(fd);
		return ret;
	}
	g->fd = fd;
	return 0;
}

/* Connect, and connect again with more doorbell memory if the stride asks for it. */
static int first_connect(struct gkv *g, uint32_t max_qps)
{
	uint32_t want = max_qps ? max_qps : DEFAULT_QPS;
	uint32_t dstrd = GUESS_DSTRD;
	int ret;

	for (;;) {
		if (!(g->flags & GKV_CONNECT_CONTROL)) {
			ret = doorbells_alloc(g, want, dstrd);
			if (ret)
				return ret;
		}
		ret = try_connect(g);
		if (ret)
			return ret;
		if (g->flags & GKV_CONNECT_CONTROL)
			return 0;
		if (max_qps > le32toh(g->hello.max_qid))
			return gkvi_err(-EINVAL,
					"%u queue pairs asked for, kvbridged's limit is %u",
					max_qps, le32toh(g->hello.max_qid));
		if (GKV_DB_LEN((size_t)want, g->dstrd) <= g->db_len)
			break;
		dstrd = g->dstrd;
		close(g->fd);
		g->fd = -1;
		doorbells_free(g);
	}
	g->max_qps = want < le32toh(g->hello.max_qid) ? want : le32toh(g->hello.max_qid);
	return 0;
}

static int set_path(struct gkv *g, const char *path)
{
	if (!path)
		path = getenv("GKV_SOCKET");
	if (!path || !*path)
		path = GKV_SOCKET_DEFAULT;
	if (strlen(path) >= sizeof(g->addr.sun_path))
		return gkvi_err(-ENAMETOOLONG, "socket path of %zu bytes, the limit is %zu",
				strlen(path), sizeof(g->addr.sun_path) - 1);
	g->addr.sun_family = AF_UNIX;
	strcpy(g->addr.sun_path, path);
	return 0;
}

static void destroy(struct gkv *g)
{
	if (g->fd >= 0)
		close(g->fd);
	gkvi_qp_free_all(g);
	gkvi_mem_free_all(g);
	doorbells_free(g);
	if (g->states)
		munmap(g->states, STATES_RESERVE);
	if (g->kick >= 0)
		close(g->kick);
	free(g->qp_by_id);
	pthread_cond_destroy(&g->back);
	pthread_mutex_destroy(&g->mem_lock);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

int gkv_connect(struct gkv **out, const char *path, uint32_t max_qps, uint32_t flags)
{
	pthread_condattr_t attr;
	struct gkv *g;
	int ret;

	if (!out)
		return gkvi_err(-EINVAL, "no place for the session handle");
	*out = NULL;
	if (flags & ~(GKV_CONNECT_NO_RECONNECT | GKV_CONNECT_CONTROL))
		return gkvi_err(-EINVAL, "unknown flags 0x%x", flags);
	if (max_qps > 65534)
		return gkvi_err(-EINVAL, "%u queue pairs asked for, the protocol's limit is 65534",
				max_qps);
	g = calloc(1, sizeof(*g));
	if (!g)
		return gkvi_err(-ENOMEM, "out of memory");
	g->fd = -1;
	g->db_fd = -1;
	g->kick = -1;
	g->flags = flags;
	g->next_region = 1;
	list_init(&g->mems);
	list_init(&g->qps);
	list_init(&g->db_pages);
	pthread_mutex_init(&g->lock, NULL);
	pthread_mutex_init(&g->mem_lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&g->back, &attr);
	pthread_condattr_destroy(&attr);

	ret = set_path(g, path);
	if (ret)
		goto fail;
	if (getrandom(g->session, sizeof(g->session), 0) != sizeof(g->session)) {
		ret = gkvi_err(-EIO, "no random numbers");
		goto fail;
	}
	if (!(flags & GKV_CONNECT_CONTROL)) {
		g->states = mmap(NULL, STATES_RESERVE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1,
				 0);
		if (g->states == MAP_FAILED) {
			ret = gkvi_err(-errno, "cannot reserve memory: %s", strerror(errno));
			g->states = NULL;
			goto fail;
		}
	}
	pthread_mutex_lock(&g->lock);
	ret = first_connect(g, max_qps);
	pthread_mutex_unlock(&g->lock);
	if (ret)
		goto fail;
	g->up = 1;
	if (!(flags & GKV_CONNECT_CONTROL)) {
		g->qp_by_id = calloc((size_t)g->max_qps + 1, sizeof(struct gkv_qp *));
		if (!g->qp_by_id) {
			ret = gkvi_err(-ENOMEM, "out of memory");
			goto fail;
		}
		ret = gkvi_keeper_start(g);
		if (ret)
			goto fail;
	}
	*out = g;
	return 0;
fail:
	destroy(g);
	return ret;
}

void gkv_close(struct gkv *g)
{
	if (!g)
		return;
	gkvi_keeper_stop(g);
	destroy(g);
}

uint64_t gkv_reconnects(const struct gkv *g)
{
	return load_acquire(&g->reconnects);
}

int gkv_connected(const struct gkv *g)
{
	return (int)load_acquire(&g->up);
}

int gkv_limits(struct gkv *g, struct gkv_limits *limits)
{
	struct gkv_limits l = { 0 };

	if (!limits || limits->size < sizeof(uint32_t))
		return gkvi_err(-EINVAL, "struct gkv_limits: size is not set");
	pthread_mutex_lock(&g->lock);
	l.size = limits->size;
	l.max_depth = le32toh(g->hello.max_depth);
	l.max_qps = g->max_qps;
	l.max_regions = le32toh(g->hello.max_regions);
	l.max_region_bytes = le64toh(g->hello.max_region_bytes);
	l.poll_interval_ns = le64toh(g->hello.poll_interval_ns);
	l.max_deadline_ns = le64toh(g->hello.max_deadline_ns);
	pthread_mutex_unlock(&g->lock);
	memcpy(limits, &l, limits->size < sizeof(l) ? limits->size : sizeof(l));
	return 0;
}

/* ---- Namespaces ---- */

static void fill_ns_open(struct gkv_msg_ns_open *m, const char *name, uint32_t nsid, uint32_t flags)
{
	gkvi_hdr(&m->hdr, GKV_MSG_NS_OPEN, sizeof(*m));
	memcpy(m->name, name, strnlen(name, sizeof(m->name) - 1));
	m->nsid = htole32(nsid);
	m->flags = htole32(flags & GKV_NS_RDONLY ? GKV_NS_F_RDONLY : 0);
}

/* Open a namespace again after a hand-over. Caller holds g->lock. */
int gkvi_ns_reopen(struct gkv *g, int sock, const struct ns_ref *ns)
{
	struct gkv_msg_ns_open_reply r;
	struct gkv_msg_ns_open m;

	fill_ns_open(&m, ns->name, ns->nsid, ns->flags);
	return gkvi_exchange(g, sock, &m.hdr, sizeof(m), NULL, 0, &r, sizeof(r), NULL, 0,
			     HELLO_TIMEOUT_NS);
}

/* Remember an open namespace for hand-over and for the timeouts of its commands. */
static int ns_remember(struct gkv *g, const struct gkv_msg_ns_open_reply *r, uint32_t flags)
{
	uint32_t n = g->n_ns, i;
	struct ns_ref *ns;

	for (i = 0; i < n; i++)
		if (g->ns[i].nsid == le32toh(r->nsid))
			break;
	if (i == NS_MAX)
		return gkvi_err(-ENOSPC,
				"the session has %u namespaces open, which is the limit", n);
	ns = &g->ns[i];
	ns->flags = flags;
	store_relaxed(&ns->deadline_ns, le64toh(r->deadline_ns));
	if (i < n)
		return 0;
	memcpy(ns->name, r->name, sizeof(ns->name));
	ns->name[sizeof(ns->name) - 1] = 0;
	ns->nsid = le32toh(r->nsid);
	store_release(&g->n_ns, n + 1);
	return 0;
}

static int ns_open(struct gkv *g, const char *name, uint32_t nsid, uint32_t flags,
		   struct gkv_msg_ns_open_reply *r)
{
	struct gkv_msg_ns_open m;

	fill_ns_open(&m, name, nsid, flags);
	return gkvi_call(g, &m.hdr, sizeof(m), NULL, 0, r, sizeof(*r), NULL, 0);
}

int gkv_ns_open(struct gkv *g, const char *name, uint32_t flags, struct gkv_ns_info *info)
{
	struct gkv_msg_ns_open_reply r;
	struct gkv_ns_info i = { 0 };
	uint32_t nn;
	int ret;

	if (flags & ~GKV_NS_RDONLY)
		return gkvi_err(-EINVAL, "unknown flags 0x%x", flags);
	if (info && info->size < sizeof(uint32_t))
		return gkvi_err(-EINVAL, "struct gkv_ns_info: size is not set");
	if (name && (!*name || strlen(name) >= GKV_CTL_NAME))
		return gkvi_err(-EINVAL, "namespace name of %zu bytes, 1 to %d are possible",
				strlen(name), GKV_CTL_NAME - 1);
	pthread_mutex_lock(&g->lock);
	if (name) {
		ret = ns_open(g, name, 0, flags, &r);
	} else {
		int first = 0;

		nn = le32toh(g->hello.nn);
		ret = gkvi_err(-ENOENT, "kvbridged has no namespaces");
		for (uint32_t id = 1; id <= nn; id++) {
			ret = ns_open(g, "", id, flags, &r);
			if (!ret || (ret != -ENOENT && ret != -EACCES && ret != -EPERM))
				break;
			/* Of the refusals, the one that says why is worth reporting. */
			if (!first || first == -ENOENT)
				first = ret;
			ret = first;
		}
	}
	if (!ret)
		ret = ns_remember(g, &r, flags);
	pthread_mutex_unlock(&g->lock);
	if (ret || !info)
		return ret;
	i.size = info->size;
	i.nsid = le32toh(r.nsid);
	i.flags = le32toh(r.flags);
	i.key_max = le32toh(r.key_max);
	i.value_max = le32toh(r.value_max);
	i.block_size = le32toh(r.block_size);
	i.deadline_ns = le64toh(r.deadline_ns);
	memcpy(i.name, r.name, sizeof(i.name));
	i.name[sizeof(i.name) - 1] = 0;
	memcpy(info, &i, info->size < sizeof(i) ? info->size : sizeof(i));
	return 0;
}
