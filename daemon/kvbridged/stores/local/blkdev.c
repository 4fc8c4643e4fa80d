/* SPDX-License-Identifier: MIT */
/* Vetting a block device: what the block layer says, and for NVMe the drive itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <libnvme.h>
#include <linux/fs.h>

#include "stores/local/local.h"

/* An attribute of the device's queue; for a partition, of the whole device's. */
static bool queue_attr(dev_t dev, const char *name, char *out, size_t len)
{
	static const char *const where[] = { "", "/.." };

	for (int i = 0; i < 2; i++) {
		char path[128];
		FILE *fp;
		bool ok;

		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u%s/queue/%s", major(dev), minor(dev),
			 where[i], name);
		fp = fopen(path, "re");
		if (!fp)
			continue;
		ok = fgets(out, len, fp) != NULL;
		fclose(fp);
		if (ok) {
			out[strcspn(out, "\n")] = 0;
			return true;
		}
	}
	return false;
}

/*
 * Ask an NVMe drive what the kernel does not show: a format with metadata in the block
 * would shift our data, and the drive knows its cache best.
 */
static int vet_nvme(struct loc_file *f, struct kvb_err *err)
{
	struct nvme_id_ns *ns = NULL;
	struct nvme_id_ctrl *ctrl = NULL;
	uint32_t nsid;
	int ret = 0;

	if (nvme_get_nsid(f->fd, &nsid))
		return 0;	/* not NVMe */
	if (posix_memalign((void **)&ns, LOC_BLK, sizeof(*ns)) ||
	    posix_memalign((void **)&ctrl, LOC_BLK, sizeof(*ctrl))) {
		ret = kvb_fail(err, ENOMEM, "out of memory");
		goto out;
	}
	if (nvme_identify_ns(f->fd, nsid, ns) || nvme_identify_ctrl(f->fd, ctrl)) {
		kvb_log(KVB_LOG_WARN, "local: %s: Identify failed; going by the block layer", f->path);
		goto out;
	}
	{
		unsigned int i = (ns->flbas & 0xf) | (ns->flbas >> 5 & 3) << 4;
		unsigned int lbs = 1u << ns->lbaf[i].ds, ms = le16toh(ns->lbaf[i].ms);

		if (ms && (ns->flbas & 0x10))
			ret = kvb_fail(err, EINVAL, "%s: format %u has %u bytes of metadata in each "
				       "block; format the namespace without", f->path, i, ms);
		else if (lbs != f->lbs)
			ret = kvb_fail(err, EINVAL, "%s: the drive has blocks of %u bytes, the block "
				       "layer of %u", f->path, lbs, f->lbs);
		if (ctrl->vwc & 1)
			f->vcache = true;
	}
out:
	free(ns);
	free(ctrl);
	return ret;
}

int loc_blkdev_vet(struct loc_file *f, struct kvb_err *err)
{
	char text[64];
	struct stat sb;
	uint64_t bytes;
	int lbs, ro = 0;

	if (fstat(f->fd, &sb))
		return kvb_fail(err, errno, "%s: %s", f->path, strerror(errno));
	if (ioctl(f->fd, BLKGETSIZE64, &bytes) || ioctl(f->fd, BLKSSZGET, &lbs) ||
	    ioctl(f->fd, BLKROGET, &ro))
		return kvb_fail(err, errno, "%s: cannot learn its geometry: %s", f->path,
				strerror(errno));
	if (ro)
		return kvb_fail(err, EROFS, "%s: read-only device", f->path);
	if (lbs < 512 || lbs > (int)LOC_BLK)
		return kvb_fail(err, EINVAL, "%s: logical blocks of %d bytes; at most %u", f->path, lbs,
				LOC_BLK);
	if (queue_attr(sb.st_rdev, "zoned", text, sizeof(text)) && strcmp(text, "none"))
		return kvb_fail(err, EINVAL, "%s: zoned device (%s)", f->path, text);
	f->size = bytes;
	f->lbs = lbs;
	f->mem_mask = lbs - 1;
	if (queue_attr(sb.st_rdev, "dma_alignment", text, sizeof(text)))
		f->mem_mask = strtoul(text, NULL, 10);
	/* Unknown counts as volatile. */
	f->vcache = !(queue_attr(sb.st_rdev, "write_cache", text, sizeof(text)) &&
		      !strcmp(text, "write through"));
	return vet_nvme(f, err);
}
