/* SPDX-License-Identifier: MIT */
/*
 * gkv-bench idle: what queue pairs cost while nothing happens on them.
 */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <json-c/json.h>

#include "bench.h"
#include "daemon.h"
#include "target.h"
#include "util.h"

static const char usage[] =
	"usage: gkv-bench idle [options]\n"
	"\n"
	"What idle queue pairs cost the daemon: processor time and memory.\n"
	"  --qps N              queue pairs (default 1)\n"
	"  --depth N            entries of each (default 1024)\n"
	"  --host               host-style queue pairs, which wake the daemon (default: polled,\n"
	"                       as a GPU's)\n"
	"  --time T             how long to watch (default 5s)\n"
	"  --socket PATH, --ns NAME\n"
	"  -o, --output FORMAT  text or json\n";

/* Private memory of @pid in bytes. */
static int64_t anon_memory(pid_t pid)
{
	char path[64], line[256];
	int64_t kib = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	if (!f)
		die("idle: %s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %" SCNd64, &kib) == 1)
			break;
	fclose(f);
	if (kib < 0)
		die("idle: %s has no RssAnon", path);
	return kib * 1024;
}

/* Bytes allocated in this process's memfds: rings, records, doorbells. */
static int64_t memfd_memory(void)
{
	DIR *d = opendir("/proc/self/fd");
	ino_t seen[4096];
	size_t n = 0;
	int64_t sum = 0;
	struct dirent *e;

	if (!d)
		die("idle: /proc/self/fd: %s", strerror(errno));
	while ((e = readdir(d))) {
		char target[64] = "";
		struct stat st;
		size_t i;

		if (readlinkat(dirfd(d), e->d_name, target, sizeof(target) - 1) < 0 ||
		    strncmp(target, "/memfd:", 7) || fstatat(dirfd(d), e->d_name, &st, 0))
			continue;
		for (i = 0; i < n && seen[i] != st.st_ino; i++)
			;
		if (i < n)
			continue;
		if (n < ARRAY_SIZE(seen))
			seen[n++] = st.st_ino;
		sum += (int64_t)st.st_blocks * 512;
	}
	closedir(d);
	return sum;
}

/* Send every entry of the ring once around, so that each page of it has been used. */
static void exercise(struct target *t, struct gkv_qp *qp, uint32_t depth)
{
	uint32_t sent = 0, done = 0;

	while (done < depth) {
		struct gkv_cmd cmds[64];
		struct gkv_comp comps[64];
		uint32_t n = depth - sent < 64 ? depth - sent : 64;
		int got;

		if (n > gkv_qp_room(qp))
			n = gkv_qp_room(qp);
		for (uint32_t i = 0; i < n; i++)
			cmds[i] = (struct gkv_cmd){
				.opcode = GKV_EXIST, .nsid = t->ns.nsid, .key_len = 4, .key = "idle"
			};
		if (n && gkv_submit(qp, cmds, n) != (int)n)
			die("idle: submit: %s", gkv_error());
		sent += n;
		got = gkv_wait(qp, comps, ARRAY_SIZE(comps), 1000000000);
		if (got < 0)
			die("idle: wait: %s", gkv_error());
		for (int i = 0; i < got; i++)
			if (comps[i].flags & (GKV_C_TIMEDOUT | GKV_C_LOST))
				die("idle: the daemon does not answer");
		done += (uint32_t)got;
	}
}

int cmd_idle(int argc, char **argv)
{
	enum { O_QPS = 256, O_DEPTH, O_HOST, O_TIME, O_SOCKET, O_NS };
	static const struct option longopts[] = {
		{ "qps", required_argument, NULL, O_QPS },
		{ "depth", required_argument, NULL, O_DEPTH },
		{ "host", no_argument, NULL, O_HOST },
		{ "time", required_argument, NULL, O_TIME },
		{ "socket", required_argument, NULL, O_SOCKET },
		{ "ns", required_argument, NULL, O_NS },
		{ "output", required_argument, NULL, 'o' },
		{ "help", no_argument, NULL, 'h' },
		{},
	};
	const char *socket_path = NULL, *ns = NULL;
	uint64_t qps = 1, depth = 1024, time_ns = 5000000000u, cpu, start, spent;
	int64_t anon_daemon, anon_client, memfd, rings, beyond;
	bool host = false, json = false;
	struct target t;
	pid_t pid;
	int opt;

	while ((opt = getopt_long(argc, argv, "o:h", longopts, NULL)) != -1) {
		switch (opt) {
		case O_QPS:
			if (parse_count(optarg, &qps) || !qps || qps > 65535)
				die("idle: --qps %s: must be 1 to 65535", optarg);
			break;
		case O_DEPTH:
			if (parse_count(optarg, &depth) || depth < 2 || depth > 65536)
				die("idle: --depth %s: must be 2 to 65536", optarg);
			break;
		case O_HOST:
			host = true;
			break;
		case O_TIME:
			if (parse_duration(optarg, &time_ns) || time_ns < 10000000)
				die("idle: --time %s: not a duration of 10ms or more", optarg);
			break;
		case O_SOCKET:
			socket_path = optarg;
			break;
		case O_NS:
			ns = optarg;
			break;
		case 'o':
			json = output_is_json(optarg);
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	pid = daemon_pid(socket_path);
	if (pid < 0)
		die("idle: %s: %s", socket_path ? socket_path : "the daemon", strerror(-pid));
	target_open(&t, socket_path, ns, (uint32_t)qps + 1);
	target_check(&t, &(struct demand){ .qd = (uint32_t)depth - 1, .qps = (uint32_t)qps + 1 });
	/* One before the baseline: what a session costs once is not a queue pair's. */
	exercise(&t, target_qp(&t, (uint32_t)depth - 1, host ? 0 : GKV_QP_POLLED, 0),
		 (uint32_t)depth);
	anon_daemon = anon_memory(pid);
	anon_client = anon_memory(getpid());
	memfd = memfd_memory();
	for (uint64_t i = 0; qps > 1 && i < qps; i++)
		exercise(&t, target_qp(&t, (uint32_t)depth - 1, host ? 0 : GKV_QP_POLLED, 0),
			 (uint32_t)depth);
	anon_daemon = anon_memory(pid) - anon_daemon;
	anon_client = anon_memory(getpid()) - anon_client;
	memfd = memfd_memory() - memfd;
	rings = (int64_t)(((depth * 64 + 4095) & ~4095ull) + ((depth * 16 + 4095) & ~4095ull));
	beyond = qps > 1 ? (anon_daemon + anon_client + memfd) / (int64_t)qps - rings : 0;

	/* Let the daemon come to rest. */
	usleep(300000);
	cpu = daemon_cpu_ns(pid);
	start = now_ns();
	usleep((useconds_t)(time_ns / 1000));
	spent = now_ns() - start;
	cpu = daemon_cpu_ns(pid) - cpu;
	if (json) {
		struct json_object *doc = json_object_new_object();

		json_add_int(doc, "qps", (long long)qps);
		json_add_int(doc, "depth", (long long)depth);
		json_object_object_add(doc, "polled", json_object_new_boolean(!host));
		json_add_int(doc, "poll_interval_ns", (long long)t.limits.poll_interval_ns);
		json_add_double(doc, "daemon_cores", (double)cpu / (double)spent);
		if (qps > 1) {
			json_add_int(doc, "ring_bytes_per_qp", rings);
			json_add_int(doc, "beyond_rings_bytes_per_qp", beyond);
			json_add_int(doc, "daemon_private_bytes", anon_daemon);
			json_add_int(doc, "client_private_bytes", anon_client);
			json_add_int(doc, "shared_bytes", memfd);
		}
		json_print(doc);
		json_object_put(doc);
	} else {
		char a[32], b[32], c[32], d[32], e[32];

		printf("%" PRIu64 " idle %s queue pair%s of depth %" PRIu64 ", poll interval %s\n",
		       qps, host ? "host" : "polled", qps == 1 ? "" : "s", depth,
		       human_ns(a, sizeof(a), (double)t.limits.poll_interval_ns));
		printf("daemon: %.2f %% of a core\n", 100.0 * (double)cpu / (double)spent);
		if (qps > 1)
			printf("memory per queue pair beyond rings of %s: %s (daemon %s, client "
			       "%s, "
			       "record and doorbells %s)\n",
			       human_bytes(a, sizeof(a), (double)rings),
			       human_bytes(b, sizeof(b), (double)beyond),
			       human_bytes(c, sizeof(c), (double)anon_daemon / (double)qps),
			       human_bytes(d, sizeof(d), (double)anon_client / (double)qps),
			       human_bytes(e, sizeof(e),
					   (double)memfd / (double)qps - (double)rings));
	}
	target_close(&t);
	return 0;
}
