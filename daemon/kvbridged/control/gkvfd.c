/* SPDX-License-Identifier: MIT */
#include "control/gkvfd.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PAGE 4096u

enum kvb_gkvfd kvb_gkvfd_kind(int fd)
{
	static const char *const names[] = {
		[KVB_GKVFD_REGION] = "anon_inode:[gkv-region]",
		[KVB_GKVFD_QP] = "anon_inode:[gkv-qp]",
	};
	enum kvb_gkvfd kind = KVB_GKVFD_NOT;
	char path[32], link[64];
	struct statfs sf;
	ssize_t n;

	/* Of a file with a name this is its path, which begins with a slash. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, link, sizeof(link) - 1);
	if (n < 0)
		return KVB_GKVFD_NOT;
	link[n] = '\0';
	for (unsigned int i = KVB_GKVFD_REGION; i <= KVB_GKVFD_QP; i++) {
		if (!strcmp(link, names[i]))
			kind = (enum kvb_gkvfd)i;
	}
	/* Only now: the file system of anything else might be one in user space. */
	if (kind != KVB_GKVFD_NOT && (fstatfs(fd, &sf) || sf.f_type != ANON_INODE_FS_MAGIC))
		kind = KVB_GKVFD_NOT;
	return kind;
}

int kvb_gkvfd_part(int fd, uint32_t part, const char *what, struct kvb_gkvpart *out,
		   struct kvb_err *err)
{
	struct gkvdrv_report r;
	uint64_t start = 0;

	/* The parts follow each other, each in whole pages. */
	for (uint32_t i = 0;; i++) {
		memset(&r, 0, sizeof(r));
		r.head.size = sizeof(r);
		r.part = i;
		if (ioctl(fd, GKVDRV_REPORT, &r))
			return kvb_fail(err, errno, "%s: the module does not say where it is: %s",
					what, strerror(errno));
		if (r.nr_pages > UINT64_MAX / PAGE / 4)
			return kvb_fail(err, EOVERFLOW, "%s: %llu pages", what,
					(unsigned long long)r.nr_pages);
		if (i == part)
			break;
		start += r.nr_pages * PAGE;
	}
	*out = (struct kvb_gkvpart){
		.at = { .place = r.place, .provider = r.provider, .domain = r.domain,
			.bdf = r.bdf, .bar = r.bar },
		.start = start,
		.pages = r.nr_pages * PAGE,
		.len = r.len,
		.page_id = r.page_id,
	};
	return 0;
}

const char *kvb_place_function(const struct kvb_place *p, char *buf, size_t len)
{
	snprintf(buf, len, "%04x:%02x:%02x.%u bar %u", p->domain, p->bdf >> 8, p->bdf >> 3 & 0x1f,
		 p->bdf & 7, p->bar);
	return buf;
}

const char *kvb_place_text(const struct kvb_place *p, char *buf, size_t len)
{
	char function[48];

	if (p->place == GKVDRV_VRAM)
		snprintf(buf, len, "vram provider %u %s", p->provider,
			 kvb_place_function(p, function, sizeof(function)));
	else
		snprintf(buf, len, "%s", p->place == GKVDRV_GONE ? "gone" : "host");
	return buf;
}
