/* SPDX-License-Identifier: MIT */
/*
 * Superblocks, watermark, formatting. A format that was cut short is known by the state of
 * member 0, which is written first and made ready last, and is started again.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/crc.h"
#include "stores/local/local.h"

#define CHUNK	(1u << 20)

static uint32_t sector_crc(const void *sector)
{
	unsigned char s[LOC_SB_SIZE];

	memcpy(s, sector, sizeof(s));
	memset(s + offsetof(struct loc_super, crc), 0, 4);
	return kvb_crc32c(0, s, sizeof(s));
}

static_assert(offsetof(struct loc_super, crc) == offsetof(struct loc_mark, crc), "crc");

/* Undo one flipped bit. Returns whether the sector is now sound. */
static bool sector_sound(void *sector, bool *repaired)
{
	unsigned char *s = sector;
	uint32_t crc;

	memcpy(&crc, s + offsetof(struct loc_super, crc), 4);
	if (le32toh(crc) == sector_crc(s))
		return true;
	for (unsigned int bit = 0; bit < LOC_SB_SIZE * 8; bit++) {
		s[bit / 8] ^= 1u << bit % 8;
		memcpy(&crc, s + offsetof(struct loc_super, crc), 4);
		if (le32toh(crc) == sector_crc(s)) {
			*repaired = true;
			return true;
		}
		s[bit / 8] ^= 1u << bit % 8;
	}
	return false;
}

static void super_fill(void *block, const struct loc_super *sb)
{
	struct loc_super d = {
		.magic = htole64(sb->magic),
		.version = htole32(sb->version),
		.state = htole32(sb->state),
		.index = htole32(sb->index),
		.members = htole32(sb->members),
		.unit = htole32(sb->unit),
		.ag_units = htole32(sb->ag_units),
		.size = htole64(sb->size),
		.units = htole64(sb->units),
		.table_off = htole64(sb->table_off),
		.data_off = htole64(sb->data_off),
	};

	memcpy(d.uuid, sb->uuid, 16);
	d.crc = htole32(sector_crc(&d));
	memset(block, 0, LOC_BLK);
	memcpy(block, &d, sizeof(d));
}

static bool super_parse(void *block, uint64_t size, struct loc_super *sb, bool *repaired)
{
	const struct loc_super *d = block;

	/* Not even nearly ours: do not go looking for flipped bits. */
	if (__builtin_popcountll(le64toh(d->magic) ^ LOC_SB_MAGIC) > 1)
		return false;
	if (!sector_sound(block, repaired) || le64toh(d->magic) != LOC_SB_MAGIC)
		return false;
	*sb = (struct loc_super){
		.magic = le64toh(d->magic),
		.version = le32toh(d->version),
		.state = le32toh(d->state),
		.index = le32toh(d->index),
		.members = le32toh(d->members),
		.unit = le32toh(d->unit),
		.ag_units = le32toh(d->ag_units),
		.size = le64toh(d->size),
		.units = le64toh(d->units),
		.table_off = le64toh(d->table_off),
		.data_off = le64toh(d->data_off),
	};
	memcpy(sb->uuid, d->uuid, 16);
	if (sb->version != LOC_VERSION)
		return true;	/* reported by the caller */
	/* A checksum that fits is no proof of sense: nothing below may overflow. */
	return (sb->state == LOC_SB_FORMATTING || sb->state == LOC_SB_READY) &&
	       sb->members && sb->members <= LOC_MAX_FILES && sb->index < sb->members &&
	       sb->unit >= LOC_BLK && sb->unit <= 1u << 20 && !(sb->unit & (sb->unit - 1)) &&
	       sb->ag_units && !(sb->ag_units % LOC_TBLK_SLOTS) && sb->ag_units <= 1u << 20 &&
	       sb->size <= size && sb->size < 1ull << 56 && !(sb->size % LOC_BLK) && sb->units &&
	       sb->units < sb->size / sb->unit && sb->table_off == 3 * LOC_BLK &&
	       !(sb->data_off % LOC_BLK) && sb->data_off < sb->size &&
	       sb->data_off >= sb->table_off &&
	       sb->data_off - sb->table_off >= sb->units * sizeof(struct loc_slot) &&
	       sb->data_off + sb->units * sb->unit + LOC_BLK <= sb->size;
}

static void hex(const uint8_t *uuid, char out[33])
{
	for (int i = 0; i < 16; i++) {
		static const char d[] = "0123456789abcdef";

		out[2 * i] = d[uuid[i] >> 4];
		out[2 * i + 1] = d[uuid[i] & 15];
	}
	out[32] = 0;
}

/* Both copies; true with f->sb set when one is good. The other is written again. */
static int super_read(struct loc_store *ls, struct loc_file *f, void *buf, bool *found,
		      struct kvb_err *err)
{
	struct loc_super sb[2];
	bool ok[2], bad_bit[2] = { false, false };
	uint64_t off[2] = { 0, f->size - LOC_BLK };
	int good;

	for (int i = 0; i < 2; i++) {
		int ret = loc_pread(f, buf, LOC_BLK, off[i]);

		if (ret && !i)
			kvb_log(KVB_LOG_WARN, "local: %s: superblock: %s", f->path, strerror(-ret));
		ok[i] = !ret && super_parse(buf, f->size, &sb[i], &bad_bit[i]);
		/* The copy lies at the end of what was formatted; the file may have grown. */
		if (!i && ok[0] && sb[0].version == LOC_VERSION)
			off[1] = sb[0].size - LOC_BLK;
	}
	*found = ok[0] || ok[1];
	if (!*found)
		return 0;
	good = ok[0] ? 0 : 1;
	/* Two copies of different ages: a format was cut short. */
	if (ok[0] && ok[1] && sb[1].state < sb[0].state &&
	    !memcmp(sb[0].uuid, sb[1].uuid, 16))
		good = 0;
	f->sb = sb[good];
	if (f->sb.version != LOC_VERSION)
		return kvb_fail(err, EINVAL, "%s: format version %u; this daemon knows %u", f->path,
				f->sb.version, LOC_VERSION);
	for (int i = 0; i < 2; i++) {
		if (ok[i] && !bad_bit[i] && !memcmp(&sb[i], &f->sb, sizeof(f->sb)))
			continue;
		if (f->sb.state != LOC_SB_READY)
			continue;
		kvb_log(KVB_LOG_WARN, "local: %s: %s superblock damaged, written again", f->path,
			i ? "second" : "first");
		atomic_fetch_add(&ls->super_repaired, 1);
		super_fill(buf, &f->sb);
		if (loc_pwrite(f, buf, LOC_BLK, i ? f->sb.size - LOC_BLK : 0))
			kvb_log(KVB_LOG_ERR, "local: %s: superblock cannot be written", f->path);
	}
	return 0;
}

static int super_write(struct loc_file *f, void *buf, uint32_t state)
{
	int ret;

	f->sb.state = state;
	super_fill(buf, &f->sb);
	ret = loc_pwrite(f, buf, LOC_BLK, 0);
	return ret ? ret : loc_pwrite(f, buf, LOC_BLK, f->sb.size - LOC_BLK);
}

static bool range_zero(struct loc_file *f, void *buf, uint64_t off, uint64_t end, int *ret)
{
	*ret = 0;
	off &= ~(uint64_t)(LOC_BLK - 1);
	while (off < end) {
		size_t n = end - off < CHUNK ? end - off : CHUNK;
		const uint64_t *w = buf;

		*ret = loc_pread(f, buf, n, off);
		if (*ret)
			return false;
		for (size_t i = 0; i < n / 8; i++) {
			if (w[i])
				return false;
		}
		off += n;
	}
	return true;
}

/*
 * Nothing of somebody else's: a file is looked at where it has data at all, a device at
 * both ends, where every table and file system has something, and in samples.
 */
static bool is_blank(struct loc_file *f, void *buf, int *ret)
{
	uint64_t off = 0;

	*ret = 0;
	if (f->blkdev) {
		uint64_t head = 64ull << 20, step = f->size / 256 & ~(uint64_t)(LOC_BLK - 1);

		if (!range_zero(f, buf, 0, f->size < head ? f->size : head, ret) ||
		    !range_zero(f, buf, f->size - LOC_BLK * 16, f->size, ret))
			return false;
		for (unsigned int i = 0; step && i < 256; i++) {
			if (!range_zero(f, buf, i * step, i * step + LOC_BLK, ret))
				return false;
		}
		return true;
	}
	while (off < f->size) {
		off_t data = lseek(f->fd, off, SEEK_DATA), hole;

		if (data < 0)
			return errno == ENXIO || range_zero(f, buf, off, f->size, ret);
		hole = lseek(f->fd, data, SEEK_HOLE);
		if (hole < 0 || (uint64_t)hole > f->size)
			hole = f->size;
		if ((uint64_t)data < f->size && !range_zero(f, buf, data, hole, ret))
			return false;
		off = hole;
	}
	return true;
}

static int geometry(struct loc_store *ls, struct loc_file *f, uint32_t index, struct kvb_err *err)
{
	uint64_t room = f->size - 5 * LOC_BLK, units;
	struct loc_super *sb = &f->sb;

	units = room / (ls->unit + sizeof(struct loc_slot));
	for (;; units--) {
		uint64_t data = 3 * LOC_BLK + units * sizeof(struct loc_slot);

		/* Data begin on a unit, so that extents lie well on the device. */
		data = (data + ls->unit - 1) & ~(uint64_t)(ls->unit - 1);
		if (units && data + units * ls->unit + 2 * LOC_BLK > f->size)
			continue;
		*sb = (struct loc_super){
			.magic = LOC_SB_MAGIC, .version = LOC_VERSION, .index = index,
			.members = ls->nfiles, .unit = ls->unit, .size = f->size, .units = units,
			.table_off = 3 * LOC_BLK, .data_off = data,
		};
		memcpy(sb->uuid, ls->uuid, 16);
		break;
	}
	if (!units)
		return kvb_fail(err, EINVAL, "%s: %llu bytes have no room for a unit of %u", f->path,
				(unsigned long long)f->size, ls->unit);
	return 0;
}

/* Groups small enough that every shard gets several, whole blocks of the table each. */
static uint32_t group_units(uint64_t total)
{
	uint64_t n = total / 64 / LOC_TBLK_SLOTS * LOC_TBLK_SLOTS;

	return n < LOC_TBLK_SLOTS ? LOC_TBLK_SLOTS : n > 16384 ? 16384 : n;
}

static int format_fail(struct loc_file *f, int ret, struct kvb_err *err)
{
	return kvb_fail(err, -ret, "%s: format: %s", f->path, strerror(-ret));
}

static int format(struct loc_store *ls, void *buf, struct kvb_err *err)
{
	uint64_t total = 0;
	int ret;

	if (getrandom(ls->uuid, 16, 0) != 16)
		return kvb_fail(err, EIO, "no random numbers");
	for (unsigned int i = 0; i < ls->nfiles; i++) {
		ret = geometry(ls, &ls->file[i], i, err);
		if (ret)
			return ret;
		total += ls->file[i].sb.units;
	}
	for (unsigned int i = 0; i < ls->nfiles; i++) {
		struct loc_file *f = &ls->file[i];

		f->sb.ag_units = group_units(total);
		ret = super_write(f, buf, LOC_SB_FORMATTING);
		if (!ret && !i)
			ret = fdatasync(f->fd) ? -errno : 0;
		if (ret)
			return format_fail(f, ret, err);
	}
	for (unsigned int i = 0; i < ls->nfiles; i++) {
		struct loc_file *f = &ls->file[i];
		uint64_t end = f->sb.data_off;

		/* Blocks that were only reserved cost a file system work at their first write. */
		if (ls->prefill && !f->blkdev)
			end += f->sb.units * f->sb.unit;
		memset(buf, 0, CHUNK);
		for (uint64_t off = LOC_BLK; off < end; off += CHUNK) {
			uint64_t n = end - off;

			ret = loc_pwrite(f, buf, n < CHUNK ? n : CHUNK, off);
			if (ret)
				return format_fail(f, ret, err);
		}
		if (fdatasync(f->fd))
			return format_fail(f, -errno, err);
	}
	for (unsigned int i = ls->nfiles; i-- > 0;) {
		struct loc_file *f = &ls->file[i];

		ret = super_write(f, buf, LOC_SB_READY);
		/* Sizes and allocations of a new file must be durable too. */
		if (!ret && fsync(f->fd))
			ret = -errno;
		if (ret)
			return format_fail(f, ret, err);
	}
	kvb_log(KVB_LOG_INFO, "local: %s: formatted, %u member(s), %llu units of %u bytes",
		ls->file[0].path, ls->nfiles, (unsigned long long)total, ls->unit);
	return 0;
}

/* Is this a format that never ended: member 0 not ready, the others of its set or blank? */
static bool half_formatted(const struct loc_store *ls, const bool *found)
{
	if (!found[0] || ls->file[0].sb.state != LOC_SB_FORMATTING)
		return false;
	for (unsigned int i = 1; i < ls->nfiles; i++) {
		if (found[i] && memcmp(ls->file[i].sb.uuid, ls->file[0].sb.uuid, 16))
			return false;
	}
	return true;
}

static int check_set(struct loc_store *ls, const bool *found, struct kvb_err *err)
{
	const struct loc_super *s0 = &ls->file[0].sb;
	char a[33], b[33];

	for (unsigned int i = 0; i < ls->nfiles; i++) {
		const struct loc_file *f = &ls->file[i];

		if (!found[i])
			return kvb_fail(err, EINVAL, "%s: not formatted, but %s is: not of one set",
					f->path, ls->file[0].path);
		if (memcmp(f->sb.uuid, s0->uuid, 16)) {
			hex(f->sb.uuid, a);
			hex(s0->uuid, b);
			return kvb_fail(err, EINVAL, "%s: of set %s, but %s is of %s", f->path, a,
					ls->file[0].path, b);
		}
		if (f->sb.index != i || f->sb.members != ls->nfiles)
			return kvb_fail(err, EINVAL, "%s: member %u of %u, given as %u of %u", f->path,
					f->sb.index, f->sb.members, i, ls->nfiles);
		if (f->sb.state != LOC_SB_READY)
			return kvb_fail(err, EINVAL, "%s: its format never ended", f->path);
		if (f->sb.unit != s0->unit || f->sb.ag_units != s0->ag_units)
			return kvb_fail(err, EINVAL, "%s: units differ from those of %s", f->path,
					ls->file[0].path);
	}
	return 0;
}

int loc_super_open(struct loc_store *ls, struct kvb_err *err)
{
	bool found[LOC_MAX_FILES] = { false }, any = false, blank = true;
	unsigned int foreign = 0;
	void *buf;
	int ret = 0;

	if (posix_memalign(&buf, LOC_BLK, CHUNK))
		return kvb_fail(err, ENOMEM, "out of memory");
	for (unsigned int i = 0; i < ls->nfiles && !ret; i++) {
		struct loc_file *f = &ls->file[i];
		bool mine;

		ret = super_read(ls, f, buf, &found[i], err);
		any |= found[i];
		if (ret || found[i] || ls->format)
			continue;
		mine = is_blank(f, buf, &ret);
		if (ret)
			ret = kvb_fail(err, -ret, "%s: cannot be read: %s", f->path, strerror(-ret));
		else if (!mine && blank) {
			blank = false;
			foreign = i;
		}
	}
	if (!ret && !blank)
		ret = kvb_fail(err, EEXIST, "%s: holds something that is not ours (local.format = on "
			       "overwrites it)", ls->file[foreign].path);
	if (!ret && (!any || half_formatted(ls, found)))
		ret = format(ls, buf, err);
	else if (!ret)
		ret = check_set(ls, found, err);
	free(buf);
	if (ret)
		return ret;
	memcpy(ls->uuid, ls->file[0].sb.uuid, 16);
	ls->unit = ls->file[0].sb.unit;
	ls->unit_shift = __builtin_ctz(ls->unit);
	ls->ag_units = ls->file[0].sb.ag_units;
	ls->nags = 0;
	for (unsigned int i = 0; i < ls->nfiles; i++) {
		struct loc_file *f = &ls->file[i];
		uint32_t seed[5];

		f->first_ag = ls->nags;
		f->nags = (f->sb.units + ls->ag_units - 1) / ls->ag_units;
		ls->nags += f->nags;
		ls->total_units += f->sb.units;
		memcpy(seed, ls->uuid, 16);
		seed[4] = htole32(i);
		f->crc_seed = kvb_crc32c(0, seed, sizeof(seed));
	}
	return 0;
}

void loc_mark_fill(const struct loc_store *ls, void *block, uint64_t seq, uint64_t gen)
{
	struct loc_mark m = {
		.magic = htole64(LOC_WM_MAGIC),
		.gen = htole64(gen),
		.seq = htole64(seq),
		.run = htole32(ls->run),
	};

	memcpy(m.uuid, ls->uuid, 16);
	m.crc = htole32(sector_crc(&m));
	memset(block, 0, LOC_BLK);
	memcpy(block, &m, sizeof(m));
}

int loc_mark_read(struct loc_store *ls, uint64_t *seq, uint64_t *gen)
{
	struct loc_mark *m;
	void *buf;
	int ret = 0;

	*seq = *gen = 0;
	ls->run = 0;
	if (posix_memalign(&buf, LOC_BLK, LOC_BLK))
		return -ENOMEM;
	m = buf;
	for (int i = 0; i < 2; i++) {
		/* An older mark, or none, only means more to check. */
		ret = loc_pread(&ls->file[0], buf, LOC_BLK, loc_mark_off(i));
		if (ret)
			break;
		if (le64toh(m->magic) != LOC_WM_MAGIC || le32toh(m->crc) != sector_crc(m) ||
		    memcmp(m->uuid, ls->uuid, 16) || le64toh(m->gen) <= *gen)
			continue;
		*gen = le64toh(m->gen);
		*seq = le64toh(m->seq);
		ls->run = le32toh(m->run);
	}
	free(buf);
	return ret;
}
