/* SPDX-License-Identifier: MIT */
/* fio on the file that a store uses, or one beside it. */
#include "floor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <json-c/json.h>

#include "util.h"

extern char **environ;

/* Run @argv and return what it writes to stdout (caller frees); NULL when it cannot run. */
static char *output_of(char *const argv[], int *status)
{
	posix_spawn_file_actions_t fa;
	size_t len = 0, room = 1 << 16;
	char *text = malloc(room + 1);
	int fds[2], err;
	pid_t pid;

	if (!text || pipe2(fds, O_CLOEXEC))
		die("floor: pipe: %s", strerror(errno));
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, fds[1], STDOUT_FILENO);
	err = posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	close(fds[1]);
	if (err) {
		close(fds[0]);
		free(text);
		errno = err;
		return NULL;
	}
	for (;;) {
		ssize_t n = read(fds[0], text + len, room - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
		if (len == room) {
			room *= 2;
			text = realloc(text, room + 1);
			if (!text)
				die("out of memory");
		}
	}
	text[len] = 0;
	close(fds[0]);
	waitpid(pid, status, 0);
	return text;
}

static double member(struct json_object *o, const char *a, const char *b, const char *c)
{
	const char *const path[] = { a, b, c };

	for (size_t i = 0; i < 3 && path[i]; i++)
		if (!json_object_object_get_ex(o, path[i], &o))
			return 0;
	return json_object_get_double(o);
}

static void parse(struct floor_result *res, const char *text, bool write)
{
	/* fio may print warnings before the document. */
	const char *start = strchr(text, '{');
	struct json_object *doc = start ? json_tokener_parse(start) : NULL, *jobs, *job, *d;

	if (!doc || !json_object_object_get_ex(doc, "jobs", &jobs) ||
	    !json_object_is_type(jobs, json_type_array) ||
	    !(job = json_object_array_get_idx(jobs, 0)) ||
	    !json_object_object_get_ex(job, write ? "write" : "read", &d) ||
	    member(job, "error", NULL, NULL) != 0) {
		res->failed = true;
		snprintf(res->why, sizeof(res->why), "fio failed or printed no result");
	} else {
		res->per_s = member(d, "iops", NULL, NULL);
		res->bytes_per_s = member(d, "bw_bytes", NULL, NULL);
		res->p50_ns = member(d, "clat_ns", "percentile", "50.000000");
		res->p99_ns = member(d, "clat_ns", "percentile", "99.000000");
		res->p999_ns = member(d, "clat_ns", "percentile", "99.900000");
	}
	json_object_put(doc);
}

static void one(const struct floor_opts *o, bool write, uint64_t bs, uint32_t qd,
		uint64_t file_size, struct floor_report *report)
{
	char size[48], block[48], depth[48], file[4096], runtime[48], cpu[48], text[32];
	char *argv[] = {
		"fio", "--name=floor", "--ioengine=io_uring", "--direct=1", "--time_based",
		"--output-format=json", "--randrepeat=0", "--norandommap", "--fallocate=none",
		/* Values are not zeros, nor the same block over and over. */
		"--refill_buffers=0", "--thread", file, size, block, depth, runtime,
		write ? "--rw=randwrite" : "--rw=randread", write ? "--overwrite=1" : "--readonly",
		o->sync ? "--sync=dsync" : "--sync=none", o->cpu_server >= 0 ? cpu : NULL, NULL
	};
	struct floor_result *res = floor_add(report, "fio %s %s, QD %" PRIu32,
					     !write    ? "read"
					     : o->sync ? "sync write"
						       : "write",
					     human_bytes(text, sizeof(text), (double)bs), qd);
	char *out;
	int status = 0;

	snprintf(file, sizeof(file), "--filename=%s", o->file);
	snprintf(size, sizeof(size), "--size=%" PRIu64, file_size / bs * bs);
	snprintf(block, sizeof(block), "--bs=%" PRIu64, bs);
	snprintf(depth, sizeof(depth), "--iodepth=%" PRIu32, qd);
	snprintf(runtime, sizeof(runtime), "--runtime=%" PRIu64 "ms", o->time_ns / 1000000);
	snprintf(cpu, sizeof(cpu), "--cpus_allowed=%d", o->cpu_server);
	if (file_size < bs) {
		res->skipped = true;
		snprintf(res->why, sizeof(res->why), "the file is smaller than the block");
		return;
	}
	out = output_of(argv, &status);
	if (!out) {
		res->skipped = errno == ENOENT;
		res->failed = !res->skipped;
		snprintf(res->why, sizeof(res->why), "fio: %s",
			 res->skipped ? "not installed (Debian package fio)" : strerror(errno));
		return;
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		res->failed = true;
		snprintf(res->why, sizeof(res->why), "fio ended with status 0x%x", status);
	} else {
		parse(res, out, write);
	}
	free(out);
}

void floor_fio(const struct floor_opts *o, struct floor_report *report)
{
	struct floor_result *res;
	struct stat st;

	if (!o->file) {
		res = floor_add(report, "fio");
		res->skipped = true;
		snprintf(res->why, sizeof(res->why), "no --file given");
		return;
	}
	if (stat(o->file, &st) || !S_ISREG(st.st_mode) || !st.st_size) {
		res = floor_add(report, "fio");
		res->failed = true;
		snprintf(res->why, sizeof(res->why), "%.100s: no regular file with data in it",
			 o->file);
		return;
	}
	for (int write = o->write_only; write <= o->write; write++)
		for (size_t s = 0; s < o->n_sizes; s++)
			for (size_t q = 0; q < o->n_qds; q++)
				one(o, write, o->sizes[s], (uint32_t)o->qds[q],
				    o->file_size ? o->file_size : (uint64_t)st.st_size, report);
}
