// SPDX-License-Identifier: MIT
/*
 * How a runtime uses /dev/gkv without libgkv: one header and system calls. It makes a queue pair,
 * with its rings in VRAM where there is some, uses its memory, and gives it up. What it learns on
 * the way it checks, so that it is a test as well as an example.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <gkv/gkvdrv.h>
#include <gkv/queue.h>

static int results, failures;

static void check(int good, const char *what)
{
	printf("%sok %d - %s\n", good ? "" : "not ", ++results, what);
	failures += !good;
}

static char reason[GKVDRV_TEXT];

/* Every argument begins with the same head; a refusal comes with a line of text. */
static int call(int fd, unsigned int cmd, void *arg, uint32_t size)
{
	struct gkvdrv_head *head = arg;

	head->size = size;
	head->text = (uintptr_t)reason;
	head->text_len = sizeof(reason);
	if (ioctl(fd, cmd, arg) == 0)
		return 0;
	printf("# command %#x: %s (reason %u: %s)\n", cmd, strerror(errno), head->reason, reason);
	return -errno;
}

/* A region of the first carve-out, for the rings; -1 where there is none. */
static int find_vram(int gkv)
{
	struct gkvdrv_provider p = { };
	struct gkvdrv_alloc a = { .len = 64 * 1024 };

	for (; call(gkv, GKVDRV_PROVIDER_INFO, &p, sizeof(p)) == 0; p.id++) {
		if (p.kind != GKVDRV_CARVEOUT)
			continue;
		a.provider = p.id;
		if (call(gkv, GKVDRV_ALLOC, &a, sizeof(a)) == 0)
			return a.fd;
	}
	return -1;
}

int main(void)
{
	struct gkvdrv_info info = { .abi = GKVDRV_ABI };
	struct gkvdrv_qp qp = { .depth = 128 };
	struct gkvdrv_revoke revoke = { };
	int gkv, region = -1;
	uint8_t *sq;

	printf("TAP version 13\n1..7\n");
	gkv = open(GKVDRV_PATH, O_RDWR | O_CLOEXEC);
	check(gkv >= 0, "open " GKVDRV_PATH);
	/* First of all: do both sides speak of the same interface? */
	check(call(gkv, GKVDRV_INFO, &info, sizeof(info)) == 0, "the versions agree");
	if (info.caps & GKVDRV_CAP_VRAM)
		region = find_vram(gkv);

	/* SQ and CQ where the GPU is nearest, doorbells where the daemon polls. */
	if (region >= 0)
		qp.mode = GKV_MODE_SQ | GKV_MODE_CQ;
	qp.parts[GKVDRV_SQ].region = region;
	qp.parts[GKVDRV_CQ].region = region;
	qp.parts[GKVDRV_CQ].offset = region >= 0 ? 32 * 1024 : 0;
	qp.parts[GKVDRV_DB].region = -1;
	check(call(gkv, GKVDRV_QP_CREATE, &qp, sizeof(qp)) == 0, "a queue pair is made");

	for (uint32_t part = 0; part < GKVDRV_PARTS; part++) {
		struct gkvdrv_report r = { .part = part };
		uint32_t want = qp.mode & 1u << part ? GKVDRV_VRAM : GKVDRV_HOST;

		if (call(qp.fd, GKVDRV_REPORT, &r, sizeof(r)) || r.place != want) {
			failures++;
			printf("# part %u is in place %u, not %u\n", part, r.place, want);
		}
	}
	check(failures == 0, "each part is where it was asked for");

	sq = mmap(NULL, qp.parts[GKVDRV_SQ].len, PROT_READ | PROT_WRITE, MAP_SHARED, qp.fd,
		  qp.parts[GKVDRV_SQ].map_offset);
	check(sq != MAP_FAILED && sq[0] == 0, "the ring is mapped, and zero");
	if (sq == MAP_FAILED)
		exit(1);
	*(volatile uint32_t *)sq = 0x12345678;
	check(*(volatile uint32_t *)sq == 0x12345678, "what is stored is there");

	/* In the end, or closing would do. */
	check(call(qp.fd, GKVDRV_REVOKE, &revoke, sizeof(revoke)) == 0, "it is given up");
	munmap(sq, qp.parts[GKVDRV_SQ].len);
	close(qp.fd);
	if (region >= 0)
		close(region);
	close(gkv);
	return failures ? 1 : 0;
}
