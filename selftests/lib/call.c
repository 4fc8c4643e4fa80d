// SPDX-License-Identifier: MIT
/* /dev/gkv: calls, regions, providers, queue pairs. */
#include "gkvtest.h"

struct gkvt_why why;

int gkvt_call(int fd, unsigned int cmd, void *arg, uint32_t size)
{
	struct gkvdrv_head *head = arg;
	int rc;

	*head = (struct gkvdrv_head) {
		.size = size,
		.text = (uintptr_t)why.text,
		.text_len = sizeof(why.text),
	};
	why.text[0] = '\0';
	rc = ioctl(fd, cmd, arg) < 0 ? -errno : 0;
	why.reason = head->reason;
	return rc;
}

int gkv_open(void)
{
	int fd = open(GKVDRV_PATH, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int region_alloc(int gkv, uint32_t provider, uint64_t len)
{
	struct gkvdrv_alloc a = { .provider = provider, .len = len };
	int rc = gkv_call(gkv, GKVDRV_ALLOC, &a);

	return rc ? rc : a.fd;
}

int report(int fd, uint32_t part, struct gkvdrv_report *r)
{
	*r = (struct gkvdrv_report) { .part = part };
	return gkv_call(fd, GKVDRV_REPORT, r);
}

bool is_gone(int fd, uint32_t part)
{
	struct gkvdrv_report r;

	return report(fd, part, &r) == 0 && r.place == GKVDRV_GONE && r.bar_offset == 0 &&
	       r.bdf == 0 && r.nr_runs == 0 && r.page_id == 0;
}

int gkv_revoke(int fd)
{
	struct gkvdrv_revoke a = { };

	return gkv_call(fd, GKVDRV_REVOKE, &a);
}

int gkv_notify(int fd, int event)
{
	struct gkvdrv_notify a = { .eventfd = event };

	return gkv_call(fd, GKVDRV_NOTIFY, &a);
}

int provider_of(int gkv, const char *bdf, uint32_t kind, struct gkvdrv_provider *p)
{
	struct pci_id id;
	int rc = pci_parse(bdf, &id);

	for (uint32_t next = 0; !rc; next = p->id + 1) {
		*p = (struct gkvdrv_provider) { .id = next };
		rc = gkv_call(gkv, GKVDRV_PROVIDER_INFO, p);
		if (!rc && p->domain == id.domain && p->bdf == id.bdf && p->kind == kind)
			return p->id;
	}
	return rc;
}

int provider_add(int gkv, const char *bdf, uint32_t bar, uint64_t offset, uint64_t len)
{
	struct gkvdrv_provider p = { .bar = bar, .offset = offset, .len = len };
	struct pci_id id;
	int rc = pci_parse(bdf, &id);

	if (rc)
		return rc;
	p.domain = id.domain;
	p.bdf = id.bdf;
	rc = gkv_call(gkv, GKVDRV_PROVIDER_ADD, &p);
	return rc ? rc : (int)p.id;
}

int provider_del(int gkv, uint32_t id)
{
	struct gkvdrv_provider p = { .id = id };

	return gkv_call(gkv, GKVDRV_PROVIDER_DEL, &p);
}

int64_t provider_used(int gkv, uint32_t id)
{
	struct gkvdrv_provider p = { .id = id };
	int rc = gkv_call(gkv, GKVDRV_PROVIDER_INFO, &p);

	if (!rc && p.id != id)
		rc = -ENOENT;
	return rc ? rc : (int64_t)p.used;
}

int wait_used(int gkv, uint32_t id, uint64_t bytes)
{
	int64_t used;

	if (eventually((used = provider_used(gkv, id)) < 0 || used == (int64_t)bytes))
		return used < 0 ? used : 0;
	printf("# provider %u has %lld bytes in use, expected %llu\n", id, (long long)used,
	       (unsigned long long)bytes);
	return -ETIMEDOUT;
}

void qp_init(struct gkvdrv_qp *qp, uint32_t depth, uint32_t mode)
{
	*qp = (struct gkvdrv_qp) { .depth = depth, .mode = mode };
	for (int i = 0; i < (int)GKVDRV_PARTS; i++)
		qp->parts[i].region = -1;
}

int qp_create(int gkv, struct gkvdrv_qp *qp, uint32_t depth, uint32_t mode, uint32_t provider)
{
	int rc;

	qp_init(qp, depth, mode);
	for (int i = 0; i < (int)GKVDRV_PARTS; i++)
		qp->parts[i].provider = mode & 1u << i ? provider : 0;
	rc = gkv_call(gkv, GKVDRV_QP_CREATE, qp);
	return rc ? rc : qp->fd;
}

int vram_provider(int gkv)
{
	const char *bdf = getenv("GKV_VRAM_BDF");
	struct gkvdrv_provider p;
	int rc;

	if (!bdf)
		return -ENODEV;
	rc = pci_bind(bdf, "gkvdrv");
	return rc ? rc : provider_of(gkv, bdf, GKVDRV_CARVEOUT, &p);
}
