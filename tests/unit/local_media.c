/* SPDX-License-Identifier: MIT */
#include "local_media.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stores/local/local.h"

#define SECTOR 512u

struct lost {
	int file;
	uint64_t off;
	uint32_t len;
	unsigned char *data;
	struct lost *next;
};

static struct {
	int fd;			/* the rig's own */
	uint64_t dev, ino;
	unsigned char *durable;
} media[RIG_MAX_FILES];
static struct lost *unflushed, **unflushed_tail = &unflushed;
static uint64_t pwrites;

void media_begin(unsigned int i, const char *path)
{
	struct stat sb;

	media[i].fd = open(path, O_RDWR | O_CREAT, 0600);
	CHECK(media[i].fd >= 0 && !ftruncate(media[i].fd, rig.file_size));
	CHECK(!fstat(media[i].fd, &sb));
	media[i].dev = sb.st_dev;
	media[i].ino = sb.st_ino;
	media[i].durable = calloc(1, rig.file_size);
	CHECK(media[i].durable);
}

void media_end(void)
{
	media_drain(-1);
	for (unsigned int i = 0; i < rig.files; i++) {
		close(media[i].fd);
		free(media[i].durable);
		media[i].fd = -1;
		media[i].durable = NULL;
	}
}

void media_opening(void)
{
	pwrites = 0;
}

int media_of(int fd)
{
	struct stat sb;

	if (fstat(fd, &sb))
		return -1;
	for (unsigned int i = 0; i < rig.files; i++) {
		if (media[i].fd >= 0 && media[i].dev == sb.st_dev && media[i].ino == sb.st_ino)
			return i;
	}
	return -1;
}

static void remember(int file, uint64_t off, const void *data, uint32_t len)
{
	struct lost *l = malloc(sizeof(*l));

	CHECK(l);
	l->file = file;
	l->off = off;
	l->len = len;
	l->data = malloc(len);
	CHECK(l->data);
	memcpy(l->data, data, len);
	l->next = NULL;
	*unflushed_tail = l;
	unflushed_tail = &l->next;
}

void media_drain(int file)
{
	struct lost **pp = &unflushed, *l;

	while ((l = *pp)) {
		if (file >= 0 && l->file != file) {
			pp = &l->next;
			continue;
		}
		CHECK(l->off + l->len <= rig.file_size);
		memcpy(media[l->file].durable + l->off, l->data, l->len);
		*pp = l->next;
		free(l->data);
		free(l);
	}
	unflushed_tail = pp;
}

ssize_t media_write(int file, const void *buf, uint32_t len, uint64_t off)
{
	remember(file, off, buf, len);
	return syscall(SYS_pwrite64, media[file].fd, buf, len, off);
}

ssize_t media_write_durable(int file, const void *buf, uint32_t len, uint64_t off)
{
	CHECK(off + len <= rig.file_size);
	memcpy(media[file].durable + off, buf, len);
	/* An older write of the same sectors has been overtaken: it brings nothing back. */
	for (struct lost *l = unflushed; l; l = l->next) {
		uint64_t a = off > l->off ? off : l->off;
		uint64_t b = off + len < l->off + l->len ? off + len : l->off + l->len;

		if (l->file == file && a < b)
			memcpy(l->data + (a - l->off), (const char *)buf + (a - off), b - a);
	}
	return syscall(SYS_pwrite64, media[file].fd, buf, len, off);
}

/* What the store does while it opens comes past here too. */
ssize_t pwrite(int fd, const void *buf, size_t len, off_t off)
{
	int file = media_of(fd);

	if (file >= 0) {
		if (rig.fail_pwrite_after && ++pwrites >= rig.fail_pwrite_after) {
			errno = EIO;
			return -1;
		}
		remember(file, off, buf, len);
	}
	return syscall(SYS_pwrite64, fd, buf, len, off);
}

int fdatasync(int fd)
{
	int file = media_of(fd);

	if (file >= 0)
		media_drain(file);
	return 0;
}

int fsync(int fd)
{
	return fdatasync(fd);
}

/* Mostly all of a write's sectors or none. */
void media_maybe_keep(int file, uint64_t off, const void *buf, uint32_t len)
{
	const unsigned char *data = buf;
	unsigned int how = rig_below(4);

	for (uint32_t i = 0; i < len; i += SECTOR) {
		uint32_t n = len - i < SECTOR ? len - i : SECTOR;

		if (rig.keep ? !rig.keep(file, off + i) :
			       how == 0 || (how == 1 && rig_below(2)))
			continue;
		memcpy(media[file].durable + off + i, data + i, n);
	}
}

void media_cut(void)
{
	struct lost *l;

	while ((l = unflushed)) {
		media_maybe_keep(l->file, l->off, l->data, l->len);
		unflushed = l->next;
		free(l->data);
		free(l);
	}
	unflushed_tail = &unflushed;
	for (unsigned int i = 0; i < rig.files; i++)
		CHECK(syscall(SYS_pwrite64, media[i].fd, media[i].durable, rig.file_size, 0) ==
		      (ssize_t)rig.file_size);
}

void rig_peek(int file, uint64_t off, void *buf, size_t len)
{
	CHECK(pread(media[file].fd, buf, len, off) == (ssize_t)len);
}

void rig_poke(int file, uint64_t off, const void *buf, size_t len)
{
	CHECK(syscall(SYS_pwrite64, media[file].fd, buf, len, off) == (ssize_t)len);
	memcpy(media[file].durable + off, buf, len);
}

void media_check_reuse(const struct loc_file *f, int file, uint64_t off, uint32_t len)
{
	uint64_t first = (off - f->sb.data_off) / f->sb.unit;
	uint64_t last = (off + len - 1 - f->sb.data_off) / f->sb.unit;

	for (uint64_t u = 0; u <= last; u++) {
		uint64_t at = f->sb.table_off + u * sizeof(struct loc_slot);
		struct loc_slot kept, seen;

		memcpy(&kept, media[file].durable + at, sizeof(kept));
		/* A tombstone speaks of a key, not of what its units hold. */
		if (kept.type != LOC_LIVE || u + le32toh(kept.units) <= first ||
		    le32toh(kept.crc) != loc_slot_crc(f, u, &kept))
			continue;
		rig_peek(file, at, &seen, sizeof(seen));
		CHECK(!memcmp(&kept, &seen, sizeof(kept)));
	}
}
