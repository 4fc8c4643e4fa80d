/* SPDX-License-Identifier: MIT */
/*
 * What stores/rados/shim.cc promises, tried on a cluster.
 *
 *   shim_probe CONF POOL NAMESPACE values       reads, writes, attributes, times; TAP
 *   shim_probe CONF POOL NAMESPACE cancel       asks for an OSD to be paused and continued
 *   shim_probe CONF POOL NAMESPACE put          makes an object of each name on stdin
 *   shim_probe CONF POOL NAMESPACE names PAGE   lists from each name on stdin ("-": the first)
 */
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stores/rados/shim.h"
#include "rig.h"

#define ATTR "probe.attr"
#define MIB (1u << 20)
#define TIME_S 1234567890
#define TIME_NS 123456789u

static rados_ioctx_t io;
static sem_t over;

static void called(void *arg)
{
	sem_post(arg);
}

static void die(const char *what, int rc)
{
	printf("Bail out! %s: %s\n", what, strerror(-rc));
	exit(1);
}

static void connect_to(const char *conf, const char *pool, const char *ns, rados_t *cluster)
{
	int rc = rados_create(cluster, NULL);

	if (!rc)
		rc = rados_conf_read_file(*cluster, conf);
	if (!rc)
		rc = rados_connect(*cluster);
	if (!rc)
		rc = rados_ioctx_create(*cluster, pool, &io);
	if (rc)
		die("connect", rc);
	rados_ioctx_set_namespace(io, ns);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Whether the write lets go of its data within @seconds. */
static bool idles(struct rsh_write *w, double seconds)
{
	double end = now() + seconds;

	while (!rsh_write_idle(w)) {
		if (now() > end)
			return false;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return true;
}

static int do_write(const struct rsh_write_args *a)
{
	int rc;
	struct rsh_write *w = rsh_write_start(io, a, called, &over, &rc);

	if (!w)
		return rc;
	sem_wait(&over);
	rc = rsh_write_result(w);
	if (!idles(w, 5))
		die("a write that is over keeps its data", -EBUSY);
	rsh_write_free(w);
	return rc;
}

static unsigned char byte_at(const char *oid, uint64_t off)
{
	return (unsigned char)((off * 2654435761u >> 13) + off + (unsigned char)oid[0]);
}

static void fill(const char *oid, unsigned char *buf, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		buf[i] = byte_at(oid, i);
}

struct got {
	struct rsh_read_result res;
	bool right;		/* all bytes are what fill() made of the object of @as */
	unsigned int pieces;
};

static struct got do_read(const struct rsh_read_args *a, const char *as)
{
	struct got g = { .right = true };
	uint32_t off = 0, n;
	int rc;
	struct rsh_read *r = rsh_read_start(io, a, called, &over, &rc);

	memset(&g.res, 0xee, sizeof(g.res));
	if (!r) {
		g.res.rc = rc;
		return g;
	}
	sem_wait(&over);
	rsh_read_result(r, &g.res);
	if (!g.res.rc) {
		for (const unsigned char *p; (p = rsh_read_piece(r, off, &n)); off += n, g.pieces++)
			for (uint32_t i = 0; i < n; i++)
				g.right &= p[i] == byte_at(as, a->off + off + i);
		/* Pieces end where the length says, and one may start in the middle of one. */
		g.right &= off == g.res.len;
		if (off > 1)
			g.right &= *(const unsigned char *)rsh_read_piece(r, off - 1, &n) ==
				byte_at(as, a->off + off - 1) && n == 1;
	}
	rsh_read_free(r);
	return g;
}

static void test_sizes(unsigned char *buf)
{
	static const uint32_t sizes[] = { 0, 1, 2, 511, 4095, 4096, 4097, 65536, MIB - 1, MIB,
					  4 * MIB + 5, 32 * MIB, 64 * MIB };

	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char oid[16];
		uint32_t size = sizes[i], half = size / 2;
		struct got whole, short_read, tail, beyond, stat, longer;
		uint64_t version;

		snprintf(oid, sizeof(oid), "%c%u", 'a' + i, size);
		fill(oid, buf, size);
		tap_ok(!do_write(&(struct rsh_write_args){ .oid = oid, .data = buf, .len = size,
			.mtime_sec = TIME_S, .mtime_nsec = TIME_NS + i }), "write %u bytes", size);
		/* The caller's memory is its own again. */
		memset(buf, 0x5a, size);
		whole = do_read(&(struct rsh_read_args){ .oid = oid, .len = size, .stat = true },
				oid);
		version = whole.res.version;
		tap_ok(!whole.res.rc && whole.right && whole.res.len == size &&
		       whole.res.size == size && whole.res.mtime_sec == TIME_S &&
		       whole.res.mtime_nsec == TIME_NS + i && !whole.res.attr_len && version,
		       "read %u bytes, size and time to the ns, in %u pieces", size, whole.pieces);
		short_read = do_read(&(struct rsh_read_args){ .oid = oid, .len = half,
			.stat = true }, oid);
		tap_ok(!short_read.res.rc && short_read.right && short_read.res.len == half &&
		       short_read.res.size == size && short_read.res.version == version,
		       "read the first half of %u bytes", size);
		tail = do_read(&(struct rsh_read_args){ .oid = oid, .off = half, .len = size + 1 },
			       oid);
		tap_ok(!tail.res.rc && tail.right && tail.res.len == size - half,
		       "read from the middle to beyond the end of %u bytes", size);
		longer = do_read(&(struct rsh_read_args){ .oid = oid, .len = 90 * MIB,
			.stat = true }, oid);
		tap_ok(!longer.res.rc && longer.right && longer.res.len == size,
		       "read more than the %u bytes there are", size);
		beyond = do_read(&(struct rsh_read_args){ .oid = oid, .off = size, .len = 4096 },
				 oid);
		tap_ok(!beyond.res.rc && !beyond.res.len && !beyond.pieces,
		       "nothing behind the end of %u bytes", size);
		stat = do_read(&(struct rsh_read_args){ .oid = oid }, oid);
		tap_ok(!stat.res.rc && !stat.res.len && !stat.pieces && stat.res.size == size &&
		       stat.res.version == version, "a read of no bytes of %u is none", size);
	}
}

static void test_options(unsigned char *buf)
{
	struct rsh_write_args a = { .oid = "option", .data = buf, .len = 1000 };
	struct rsh_read_args rd = { .oid = "option", .len = 5000, .stat = true };
	struct rsh_write_args rm = { .oid = "option", .remove = true };
	struct got g;
	uint64_t version;

	fill("option", buf, 2000);
	a.must_exist = true;
	tap_ok(do_write(&a) == -ENOENT, "must exist: -ENOENT without an object");
	g = do_read(&rd, "option");
	tap_ok(g.res.rc == -ENOENT, "... and none was made: reading it is -ENOENT");
	rd.attr = ATTR;
	g = do_read(&rd, "option");
	tap_ok(g.res.rc == -ENOENT, "... with an attribute, too");
	tap_ok(do_read(&(struct rsh_read_args){ .oid = "option" }, "").res.rc == -ENOENT,
	       "... without data, too");
	tap_ok(do_write(&rm) == -ENOENT, "remove: -ENOENT without an object");
	a.must_exist = false;
	a.exclusive = true;
	tap_ok(!do_write(&a), "must not exist: made");
	g = do_read(&rd, "option");
	version = g.res.version;
	tap_ok(!g.res.rc && g.right && g.res.len == 1000, "... and complete");
	a.len = 2000;
	tap_ok(do_write(&a) == -EEXIST, "must not exist: -EEXIST with one");
	g = do_read(&rd, "option");
	tap_ok(!g.res.rc && g.res.len == 1000 && g.res.version == version, "... which stays");
	a.exclusive = false;
	a.must_exist = true;
	a.len = 10;
	tap_ok(!do_write(&a), "must exist: replaced by a shorter one");
	g = do_read(&rd, "option");
	tap_ok(!g.res.rc && g.right && g.res.len == 10 && g.res.size == 10 &&
	       g.res.version > version, "... of which nothing old is left, in a later version");
	a.len = 0;
	a.data = NULL;
	tap_ok(!do_write(&a), "replaced by nothing");
	g = do_read(&rd, "option");
	tap_ok(!g.res.rc && !g.res.len && !g.res.size, "... which is an object without data");
	tap_ok(!do_write(&rm), "removed");
	a.must_exist = false;
	a.exclusive = true;
	tap_ok(!do_write(&a), "made without data");
	tap_ok(do_write(&a) == -EEXIST, "... which exists");
	tap_ok(!do_write(&rm) && do_write(&rm) == -ENOENT, "removed, and once only");
}

static void test_attr(unsigned char *buf)
{
	unsigned char attr[2 * RSH_ATTR_MAX];
	struct rsh_write_args a = { .oid = "attr", .data = buf, .len = 5000, .attr = ATTR,
				    .attr_data = attr, .mtime_sec = TIME_S };
	struct rsh_read_args rd = { .oid = "attr", .len = 5000, .attr = ATTR };
	static const uint32_t lens[] = { 1, 24, RSH_ATTR_MAX, 2 * RSH_ATTR_MAX };
	struct got g;

	fill("attr", buf, 5000);
	for (unsigned int i = 0; i < sizeof(attr); i++)
		attr[i] = (unsigned char)(255 - i);
	for (unsigned int i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		uint32_t shown = lens[i] < RSH_ATTR_MAX ? lens[i] : RSH_ATTR_MAX;

		a.attr_len = lens[i];
		tap_ok(!do_write(&a), "write with an attribute of %u bytes", lens[i]);
		g = do_read(&rd, "attr");
		tap_ok(!g.res.rc && g.right && g.res.len == 5000 && g.res.attr_len == lens[i] &&
		       !memcmp(g.res.attr, attr, shown), "... and read it along");
	}
	a.attr = NULL;
	tap_ok(!do_write(&a), "write without an attribute");
	g = do_read(&rd, "attr");
	tap_ok(!g.res.rc && g.res.attr_len == 2 * RSH_ATTR_MAX, "... leaves the old one");
	rd.attr = "probe.none";
	rd.stat = true;
	g = do_read(&rd, "attr");
	tap_ok(!g.res.rc && g.right && g.res.len == 5000 && !g.res.attr_len && g.res.size == 5000 &&
	       g.res.mtime_sec == TIME_S && !g.res.mtime_nsec, "an attribute that is not there");
}

/* librados's own refusals: no callback comes. */
static void test_refused(unsigned char *buf)
{
	static char name[3000];
	struct rsh_write_args a = { .oid = name, .data = buf, .len = 1 };
	struct got g;
	int rc;

	memset(name, 'n', sizeof(name) - 1);
	rc = do_write(&a);
	tap_ok(rc == -ENAMETOOLONG, "a name that is too long (%d)", rc);
	g = do_read(&(struct rsh_read_args){ .oid = name, .len = 1 }, "");
	tap_ok(g.res.rc < 0, "... for a read, too (%d)", g.res.rc);
}

static int values(void)
{
	unsigned char *buf = malloc(64 * MIB);

	if (!buf)
		die("malloc", -ENOMEM);
	test_sizes(buf);
	test_options(buf);
	test_attr(buf);
	test_refused(buf);
	free(buf);
	return tap_done();
}

/* Ask whoever started us for something, and wait until it is done. */
static void ask(const char *what)
{
	char line[16];

	printf("%s\n", what);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		die("no answer", -EPIPE);
}

static int cancel(void)
{
	/* More than sockets take in: the receiver's may grow to 32 MiB. */
	uint32_t len = 80 * MIB, n;
	unsigned char *buf = malloc(len);
	struct rsh_write_args a = { .oid = "cancel", .data = buf, .len = len };
	struct rsh_read_args rd = { .oid = "cancel", .len = len, .stat = true };
	struct rsh_write *w;
	struct rsh_read *r;
	struct rsh_read_result res;
	struct timespec moment = { .tv_nsec = 300000000 };
	struct got g;
	double t;
	int rc;

	if (!buf)
		die("malloc", -ENOMEM);
	fill("cancel", buf, len);
	tap_ok(!do_write(&a), "write");
	ask("pause");

	r = rsh_read_start(io, &rd, called, &over, &rc);
	tap_ok(r, "a read of a paused OSD starts");
	nanosleep(&moment, NULL);
	tap_ok(sem_trywait(&over), "... and does not end");
	t = now();
	rsh_read_cancel(io, r);
	sem_wait(&over);
	rsh_read_result(r, &res);
	tap_ok(res.rc == -ECANCELED && now() - t < 1, "... until it is cancelled, at once");
	tap_ok(!rsh_read_piece(r, 0, &n), "... with no data");
	rsh_read_cancel(io, r);
	tap_ok(sem_trywait(&over), "a second cancel brings no second callback");
	rsh_read_free(r);

	w = rsh_write_start(io, &a, called, &over, &rc);
	tap_ok(w, "a write to a paused OSD starts");
	nanosleep(&moment, NULL);
	t = now();
	rsh_write_cancel(io, w);
	sem_wait(&over);
	tap_ok(rsh_write_result(w) == -ECANCELED && now() - t < 1, "... and ends when cancelled");
	tap_ok(!idles(w, 0.3), "... but its data is still to be sent");
	ask("continue");
	tap_ok(idles(w, 30), "idle when the message has left");
	rsh_write_free(w);
	memset(buf, 0, len);

	/* Operations on one object keep their order: this one sees the write before it. */
	g = do_read(&rd, "cancel");
	tap_ok(!g.res.rc && g.right && g.res.len == len, "the object is whole");
	free(buf);
	return tap_done();
}

static void print_name(void *arg, const char *oid, size_t len)
{
	++*(unsigned int *)arg;
	printf("%.*s\n", (int)len, oid);
}

static bool next_line(char *line, size_t size)
{
	if (!fgets(line, (int)size, stdin))
		return false;
	line[strcspn(line, "\n")] = '\0';
	return true;
}

/* An empty line ends each list. */
static int names(uint32_t page)
{
	char from[256];

	while (next_line(from, sizeof(from))) {
		unsigned int n;
		int rc;
		struct rsh_cursor *c = rsh_cursor_at(io, strcmp(from, "-") ? from : NULL, &rc);

		if (!c)
			die("cursor", rc);
		do {
			n = 0;
			rc = rsh_list(io, c, page, print_name, &n);
			if (n > page)
				die("more than asked for", -EOVERFLOW);
		} while (rc > 0);
		rsh_cursor_free(c);
		if (rc)
			die("list", rc);
		printf("\n");
	}
	return 0;
}

static int put(void)
{
	char oid[256];
	int rc = 0;

	while (!rc && next_line(oid, sizeof(oid)))
		rc = do_write(&(struct rsh_write_args){ .oid = oid });
	if (rc)
		die("put", rc);
	return 0;
}

int main(int argc, char **argv)
{
	rados_t cluster;
	int rc = 2;

	if (argc != (argc > 4 && !strcmp(argv[4], "names") ? 6 : 5)) {
		fprintf(stderr, "usage: %s CONF POOL NAMESPACE values|cancel|put|names PAGE\n",
			argv[0]);
		return 2;
	}
	sem_init(&over, 0, 0);
	connect_to(argv[1], argv[2], argv[3], &cluster);
	if (!strcmp(argv[4], "values"))
		rc = values();
	else if (!strcmp(argv[4], "cancel"))
		rc = cancel();
	else if (!strcmp(argv[4], "put"))
		rc = put();
	else if (!strcmp(argv[4], "names"))
		rc = names((uint32_t)strtoul(argv[5], NULL, 0));
	rados_ioctx_destroy(io);
	rados_shutdown(cluster);
	return rc;
}
