/* SPDX-License-Identifier: MIT */
/*
 * kvbridged: services NVMe Key-Value queues in shared memory against a store.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "admin/admin.h"
#include "config/config.h"
#include "config/namespace.h"
#include "config/settings.h"
#include "control/clientmem.h"
#include "control/health.h"
#include "control/server.h"
#include "core/clock.h"
#include "core/hash.h"
#include "core/killpoint.h"
#include "core/reactor_priv.h"

#define DEFAULT_CONF "/etc/gkv/kvbridged.conf"
#define MAX_OPTIONS 64
/* Commands in flight on one reactor; more wait in their queues. */
#define MAX_OPS 16384

static const struct option long_options[] = {
	{ "config", required_argument, NULL, 'c' },
	{ "option", required_argument, NULL, 'o' },
	{ "check", no_argument, NULL, 't' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ 0 },
};

static void usage(FILE *f)
{
	fputs("Usage: kvbridged [-c FILE] [-o KEY=VALUE]... [-t]\n"
	      "Service NVMe Key-Value queues in shared memory against a store.\n\n"
	      "  -c, --config FILE       configuration (default " DEFAULT_CONF ")\n"
	      "  -o, --option KEY=VALUE  override a key of the [daemon] section\n"
	      "  -t, --check             check the configuration and exit\n"
	      "  -h, --help              this text\n"
	      "  -V, --version           version\n\n"
	      "See kvbridged(8) and kvbridged.conf(5).\n",
	      f);
}

struct args {
	const char *conf;
	const char *options[MAX_OPTIONS];
	size_t noptions;
	bool check;
};

static void parse_args(int argc, char **argv, struct args *a)
{
	int c;

	*a = (struct args){ .conf = DEFAULT_CONF };
	while ((c = getopt_long(argc, argv, "c:o:thV", long_options, NULL)) != -1) {
		switch (c) {
		case 'c':
			a->conf = optarg;
			break;
		case 'o':
			if (a->noptions == MAX_OPTIONS) {
				fprintf(stderr, "kvbridged: more than %d options\n", MAX_OPTIONS);
				exit(2);
			}
			a->options[a->noptions++] = optarg;
			break;
		case 't':
			a->check = true;
			break;
		case 'h':
			usage(stdout);
			exit(0);
		case 'V':
			puts("kvbridged " GKV_BUILD_VERSION);
			exit(0);
		default:
			usage(stderr);
			exit(2);
		}
	}
	if (optind < argc) {
		fprintf(stderr, "kvbridged: unexpected argument %s\n", argv[optind]);
		exit(2);
	}
}

/* ---- Start ---- */

/* Each session holds a few descriptors and, during hand-over, some more. */
static void raise_nofile(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) || rl.rlim_cur == rl.rlim_max)
		return;
	rl.rlim_cur = rl.rlim_max;
	setrlimit(RLIMIT_NOFILE, &rl);
}

/* The page by which host clients see whether their reactor sleeps. */
static int make_state_page(struct kvb_server *srv, unsigned int n, struct kvb_err *err)
{
	size_t len = n * sizeof(struct gkv_reactor_state);
	int fd = memfd_create("gkv-reactors", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char path[32];

	len = (len + 4095) & ~(size_t)4095;
	if (fd < 0 || ftruncate(fd, (off_t)len))
		return kvb_fail(err, errno, "reactor state page: %s", strerror(errno));
	srv->state = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (srv->state == MAP_FAILED)
		return kvb_fail(err, errno, "reactor state page: %s", strerror(errno));
	/* Our mapping stays writable; nobody makes another. */
	if (fcntl(fd, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
		return kvb_fail(err, errno, "reactor state page: seals: %s", strerror(errno));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	srv->state_fd = open(path, O_RDONLY | O_CLOEXEC);
	close(fd);
	if (srv->state_fd < 0)
		return kvb_fail(err, errno, "reactor state page: %s", strerror(errno));
	return 0;
}

static int open_namespaces(struct kvb_server *srv, const struct kvb_config *cfg,
			   struct kvb_err *err)
{
	srv->nss = calloc(cfg->nns ? cfg->nns : 1, sizeof(*srv->nss));
	if (!srv->nss)
		return kvb_fail(err, ENOMEM, "out of memory");
	for (size_t i = 0; i < cfg->nns; i++) {
		int rc;
		struct kvb_ns *ns = kvb_ns_open(&cfg->ns[i], cfg, &rc, err);

		if (!ns)
			return rc;
		ns->index = srv->nns;
		srv->nss[srv->nns++] = ns;
		if (ns->nsid > srv->nn)
			srv->nn = ns->nsid;
	}
	return 0;
}

static int start_reactors(struct kvb_server *srv, const struct kvb_config *cfg,
			  struct kvb_err *err)
{
	size_t share = cfg->buffer_memory / cfg->reactors;

	for (unsigned int i = 0; i < cfg->reactors; i++) {
		struct kvb_reactor_conf rc = {
			.id = i,
			.cpu = cfg->ncpus ? (int)cfg->cpus[i % cfg->ncpus] : -1,
			.state = &srv->state[i],
			.buffer_bytes = share,
			.max_ops = MAX_OPS,
			.nss = srv->nss,
			.nns = srv->nns,
		};
		int ret;

		/* A buffer must hold the largest value, rounded up to a power of two. */
		for (unsigned int n = 0; n < srv->nns; n++) {
			size_t need = 4096;

			while (need < srv->nss[n]->value_max)
				need *= 2;
			if (rc.buffer_bytes < need)
				rc.buffer_bytes = need;
		}
		ret = kvb_reactor_start(&rc, err);
		if (ret)
			return ret;
	}
	return kvb_reactors_start_stores(err);
}

static struct kvb_ctrl ctrl;

static void note_error(uint16_t qid, const struct kvb_op *op)
{
	kvb_admin_log_error(&ctrl, qid, op->cid, op->status, op->sqe.nsid, op->sqe.opcode,
			    KVB_PARAM_NONE);
}

static void random_bytes(void *p, size_t n)
{
	while (getrandom(p, n, 0) != (ssize_t)n)
		;
}

static int serve(struct kvb_server *srv, struct kvb_config *cfg, struct kvb_err *err)
{
	int rc;

	rc = kvb_reactors_create((unsigned int)cfg->reactors, err);
	if (rc)
		return rc;
	rc = open_namespaces(srv, cfg, err);
	if (rc)
		return rc;
	rc = make_state_page(srv, (unsigned int)cfg->reactors, err);
	if (rc)
		return rc;
	rc = start_reactors(srv, cfg, err);
	if (rc)
		return rc;
	ctrl.ns = srv->nss;
	ctrl.nns = srv->nns;
	memcpy(ctrl.uuid, cfg->uuid, sizeof(ctrl.uuid));
	ctrl.max_qid = (uint32_t)cfg->max_qid;
	ctrl.max_depth = (uint32_t)cfg->max_queue_depth;
	ctrl.counters = kvb_health_counters;
	ctrl.ctx = srv;
	kvb_ctrl_init(&ctrl);
	srv->ctrl = &ctrl;
	kvb_note_error = note_error;
	/* Last: who finds the socket finds everything behind it ready. */
	rc = kvb_server_listen(srv, err);
	if (rc)
		return rc;
	kvb_health_begin(srv);
	kvb_log(KVB_LOG_INFO, "serving %u namespaces on %s with %u reactors", srv->nns,
		cfg->socket, kvb_nreactors);
	rc = kvb_server_run(srv);
	if (rc)
		kvb_fail(err, -rc, "not everything could be drained");
	return rc;
}

int main(int argc, char **argv)
{
	struct kvb_server srv = { .listen_fd = -1, .lock_fd = -1, .epoll_fd = -1, .wake_fd = -1,
				  .signal_fd = -1, .state_fd = -1, .reserve_fd = -1 };
	struct kvb_config cfg;
	struct kvb_err err = { 0 };
	struct args args;
	sigset_t set;
	int rc;

	parse_args(argc, argv, &args);
	rc = kvb_config_load(&cfg, args.conf, args.options, args.noptions, &err);
	if (rc) {
		fprintf(stderr, "kvbridged: %s\n", err.text);
		return 1;
	}
	if (args.check) {
		printf("%s: ok\n", args.conf);
		kvb_config_free(&cfg);
		return 0;
	}
	kvb_killpoint_init();
	kvb_settings_init(&cfg);
	raise_nofile();
	random_bytes(kvb_hash_secret, sizeof(kvb_hash_secret));
	random_bytes(srv.instance, sizeof(srv.instance));
	srv.started_ns = kvb_clock_ns();
	srv.cfg = &cfg;

	/* Threads inherit the mask: the signals reach the control thread's signalfd only. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);

	rc = kvb_clientmem_init(&err);
	if (!rc)
		rc = kvb_server_mailbox(&srv, &err);
	if (!rc)
		rc = serve(&srv, &cfg, &err);
	if (rc)
		fprintf(stderr, "kvbridged: %s\n", err.text);
	/* What is still in flight owns memory: leave it to the kernel. */
	if (rc == -ETIMEDOUT && srv.sessions)
		_exit(1);
	kvb_reactors_stop();
	while (srv.nns)
		kvb_ns_close(srv.nss[--srv.nns]);
	if (!rc)
		kvb_health_end(&srv);
	free(srv.nss);
	kvb_server_close(&srv);
	if (srv.state_fd >= 0)
		close(srv.state_fd);
	kvb_config_free(&cfg);
	if (!rc)
		kvb_log(KVB_LOG_INFO, "stopped");
	if (kvb_threads_left) {
		fflush(NULL);
		_exit(rc ? 1 : 0);
	}
	return rc ? 1 : 0;
}
