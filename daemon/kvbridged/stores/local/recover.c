/* SPDX-License-Identifier: MIT */
/*
 * Rebuilding index and free maps from the header table. The highest sequence of a key
 * wins. A header above the watermark is believed only when its value's checksum is right,
 * because the value may never have landed; what loses is cleared, after what won has been
 * made durable.
 */
#include <stdlib.h>
#include <string.h>

#include "core/crc.h"
#include "core/hash.h"
#include "stores/local/local.h"

#define CHUNK	(1u << 20)
#define LOG_MAX	16u	/* damaged slots named in the log */

/* A valid slot that needs more than a look. */
struct found {
	uint64_t seq;
	uint32_t part;
	loc_pos pos;
};

struct recovery {
	struct loc_store *ls;
	uint64_t mark, max_seq;
	void *buf;
	struct found *later;	/* parts, and what is above the watermark */
	size_t nlater, later_cap;
	loc_pos *losers;
	size_t nlosers, losers_cap;
	loc_pos *tombs;
	size_t ntombs, tombs_cap;
	loc_pos *bad;
	size_t nbad, bad_cap;
	loc_pos *dirty;		/* one slot of each block to write */
	size_t ndirty, dirty_cap;
};

static int grow(void **v, size_t n, size_t *cap, size_t size)
{
	size_t want = *cap ? 2 * *cap : 64;
	void *p;

	if (n < *cap)
		return 0;
	p = realloc(*v, want * size);
	if (!p)
		return -ENOMEM;
	*v = p;
	*cap = want;
	return 0;
}

static int pos_add(loc_pos **v, size_t *n, size_t *cap, loc_pos pos)
{
	if (grow((void **)v, *n, cap, sizeof(**v)))
		return -ENOMEM;
	(*v)[(*n)++] = pos;
	return 0;
}

#define POS_ADD(rc, list, pos) pos_add(&(rc)->list, &(rc)->n##list, &(rc)->list##_cap, pos)

void loc_ids_add(struct loc_id_set *s, uint64_t uid, uint64_t seq)
{
	/* Without memory an operation counts as not applied, and its Store is run again. */
	if (!grow((void **)&s->v, s->n, &s->cap, sizeof(*s->v)))
		s->v[s->n++] = (struct kvb_opid){ .uid = uid, .seq = seq };
}

static int id_cmp(const void *a, const void *b)
{
	const struct kvb_opid *x = a, *y = b;

	if (x->uid != y->uid)
		return x->uid < y->uid ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

bool loc_ids_has(const struct loc_id_set *s, const struct kvb_opid *id)
{
	return s->n && bsearch(id, s->v, s->n, sizeof(*s->v), id_cmp);
}

static struct loc_slot *slot_at(struct loc_store *ls, loc_pos pos)
{
	struct loc_ag *ag = loc_ag_of(ls, pos);

	return loc_table_get(ag, loc_pos_unit(pos) - ag->first);
}

/* ---- Slots ---- */

/* What a sound header says must also be possible. */
static bool slot_plausible(struct loc_store *ls, loc_pos pos, const struct loc_slot *s)
{
	struct loc_ag *ag = loc_ag_of(ls, pos);
	uint32_t units = le32toh(s->units), idx = loc_pos_unit(pos) - ag->first;
	uint32_t part = le16toh(s->part), nparts = le16toh(s->nparts);

	if ((s->type != LOC_LIVE && s->type != LOC_TOMB) || !s->klen || s->klen > GKV_KEY_MAX ||
	    !units || units > ag->units - idx || !nparts || part >= nparts ||
	    le64toh(s->seq) >= UINT64_MAX / 2)
		return false;
	for (unsigned int i = s->klen; i < sizeof(s->key); i++) {
		if (s->key[i])
			return false;
	}
	if (s->type == LOC_TOMB)
		return nparts == 1;
	return nparts > 1 || units == loc_units(ls, le32toh(s->vlen));
}

static bool slot_sound(struct loc_store *ls, loc_pos pos, const struct loc_slot *s)
{
	return le32toh(s->crc) ==
	       loc_slot_crc(&ls->file[loc_pos_file(pos)], loc_pos_unit(pos), s);
}

/* Undo one flipped bit: the checksum tells any two of a slot's states apart. */
static bool slot_repair(struct loc_store *ls, loc_pos pos, struct loc_slot *s)
{
	unsigned char *b = (unsigned char *)s;

	for (unsigned int bit = 0; bit < sizeof(*s) * 8; bit++) {
		b[bit / 8] ^= 1u << bit % 8;
		if (loc_slot_zero(s) || slot_sound(ls, pos, s))
			return true;
		b[bit / 8] ^= 1u << bit % 8;
	}
	return false;
}

static int slot_bad(struct recovery *rc, loc_pos pos, const char *why)
{
	struct loc_store *ls = rc->ls;

	if (atomic_fetch_add(&ls->slots_bad, 1) < LOG_MAX)
		kvb_log(KVB_LOG_ERR, "local: %s: header of unit %llu %s; the unit is set aside",
			ls->file[loc_pos_file(pos)].path, (unsigned long long)loc_pos_unit(pos), why);
	return POS_ADD(rc, bad, pos);
}

static int shard_of(struct loc_store *ls, const struct loc_slot *s)
{
	return kvb_reactor_id(kvb_reactor_of(kvb_hash_key(s->key, s->klen))) % ls->nshards;
}

static int lose(struct recovery *rc, const struct loc_ext *e, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (POS_ADD(rc, losers, e[i].pos))
			return -ENOMEM;
	}
	return 0;
}

/*
 * A whole version of a key: extents @x, or the tombstone at @x. Takes its place in the
 * index when it is the newest so far.
 */
static int candidate(struct recovery *rc, const struct loc_ext *x, uint32_t n)
{
	struct loc_store *ls = rc->ls;
	const struct loc_slot *s = slot_at(ls, x[0].pos);
	struct loc_btree *t = &ls->sh[shard_of(ls, s)]->index;
	struct loc_key key = loc_key_make(s->key, s->klen);
	struct loc_ent *e = loc_bt_find(t, &key);
	struct loc_extv *v = NULL;

	if (e) {
		bool multi = e->flags & LOC_ENT_MULTI, tomb = e->flags & LOC_ENT_TOMB;
		const struct loc_ext was1 = { .pos = multi ? 0 : e->pos };
		const struct loc_ext *was = multi ? e->extv->e : &was1;
		uint32_t nwas = multi ? e->extv->n : 1;
		int ret = 0;

		if (le64toh(slot_at(ls, was[0].pos)->seq) >= le64toh(s->seq))
			return s->type == LOC_TOMB ? 0 : lose(rc, x, n);
		if (!tomb)
			ret = lose(rc, was, nwas);
		if (multi)
			free(e->extv);
		e->flags = 0;
		e->pos = 0;
		if (ret) {
			loc_bt_remove(t, &key);
			return ret;
		}
	} else {
		e = loc_bt_insert(t, &key);
		if (!e)
			return -ENOMEM;
	}
	if (n > 1) {
		v = malloc(sizeof(*v) + n * sizeof(v->e[0]));
		if (!v) {
			loc_bt_remove(t, &key);
			return -ENOMEM;
		}
		v->n = n;
		memcpy(v->e, x, n * sizeof(v->e[0]));
		e->extv = v;
		e->flags = LOC_ENT_MULTI;
	} else {
		e->pos = x[0].pos;
		e->flags = s->type == LOC_TOMB ? LOC_ENT_TOMB : 0;
	}
	e->vlen = le32toh(s->vlen);
	e->vcrc = le32toh(s->vcrc);
	return 0;
}

static int slot_found(struct recovery *rc, loc_pos pos, struct loc_slot *s)
{
	struct loc_store *ls = rc->ls;
	struct loc_ag *ag = loc_ag_of(ls, pos);
	uint32_t idx = loc_pos_unit(pos) - ag->first;
	struct loc_slot copy;
	uint64_t seq;

	if (!slot_sound(ls, pos, s)) {
		copy = *s;
		if (slot_repair(ls, pos, s)) {
			if (atomic_fetch_add(&ls->slots_repaired, 1) < LOG_MAX)
				kvb_log(KVB_LOG_WARN, "local: %s: header of unit %llu: a flipped bit, put right",
					ls->file[ag->file].path, (unsigned long long)loc_pos_unit(pos));
			if (POS_ADD(rc, dirty, pos))
				return -ENOMEM;
			if (loc_slot_zero(s))
				return 0;
		} else {
			/* Kept as it is: somebody may want to look at it. */
			if (loc_table_reserve(ag, idx))
				return -ENOMEM;
			loc_table_put(ag, idx, &copy);
			return slot_bad(rc, pos, "is damaged");
		}
	}
	copy = *s;
	if (loc_table_reserve(ag, idx))
		return -ENOMEM;
	loc_table_put(ag, idx, &copy);
	if (!slot_plausible(ls, pos, s))
		return slot_bad(rc, pos, "makes no sense");
	seq = le64toh(s->seq);
	if (seq > rc->max_seq)
		rc->max_seq = seq;
	if (s->type == LOC_TOMB) {
		if (POS_ADD(rc, tombs, pos))
			return -ENOMEM;
		if (seq > rc->mark)
			loc_ids_add(&ls->ids, le64toh(s->id_uid), le64toh(s->id_seq));
	} else if (seq > rc->mark || le16toh(s->nparts) > 1) {
		if (grow((void **)&rc->later, rc->nlater, &rc->later_cap, sizeof(*rc->later)))
			return -ENOMEM;
		rc->later[rc->nlater++] = (struct found){ .seq = seq, .part = le16toh(s->part),
							   .pos = pos };
		return 0;
	}
	return candidate(rc, &(struct loc_ext){ .pos = pos, .units = le32toh(s->units) }, 1);
}

/* ---- Scan ---- */

static int scan_blocks(struct recovery *rc, unsigned int file, uint64_t first, const void *buf,
		       size_t len)
{
	struct loc_store *ls = rc->ls;
	const struct loc_slot *s = buf;

	for (size_t i = 0; i < len / sizeof(*s); i++) {
		struct loc_slot copy;
		int ret;

		if (first + i >= ls->file[file].sb.units)
			break;
		if (loc_slot_zero(&s[i]))
			continue;
		copy = s[i];
		ret = slot_found(rc, loc_pos_make(file, first + i), &copy);
		if (ret)
			return ret;
	}
	return 0;
}

static int scan_file(struct recovery *rc, unsigned int file)
{
	struct loc_store *ls = rc->ls;
	const struct loc_file *f = &ls->file[file];
	uint64_t end = (f->sb.units * sizeof(struct loc_slot) + LOC_BLK - 1) & ~(uint64_t)(LOC_BLK - 1);
	uint64_t chunk = CHUNK;
	int ret;

	for (uint64_t off = 0; off < end;) {
		uint64_t n = end - off < chunk ? end - off : chunk;
		uint64_t first = off / sizeof(struct loc_slot);

		ret = loc_pread(f, rc->buf, n, f->sb.table_off + off);
		if (ret && n > LOC_BLK) {
			chunk = LOC_BLK;	/* find out which block it is */
			continue;
		}
		if (ret) {
			for (unsigned int i = 0; i < LOC_TBLK_SLOTS && first + i < f->sb.units; i++) {
				ret = slot_bad(rc, loc_pos_make(file, first + i), "cannot be read");
				if (ret)
					return ret;
			}
		} else {
			ret = scan_blocks(rc, file, first, rc->buf, n);
			if (ret)
				return ret;
		}
		off += n;
	}
	return 0;
}

/* ---- Parts, and values whose data may not have landed ---- */

static int found_cmp(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->seq != y->seq)
		return x->seq < y->seq ? -1 : 1;
	return x->part < y->part ? -1 : x->part > y->part;
}

static bool value_landed(struct recovery *rc, const struct loc_ext *x, uint32_t n)
{
	struct loc_store *ls = rc->ls;
	const struct loc_slot *s = slot_at(ls, x[0].pos);
	uint32_t left = le32toh(s->vlen), want = le32toh(s->vcrc), crc = 0;

	for (uint32_t i = 0; i < n && left; i++) {
		const struct loc_file *f = &ls->file[loc_pos_file(x[i].pos)];
		uint64_t off = loc_data_off(ls, x[i].pos), len = (uint64_t)x[i].units << ls->unit_shift;

		while (len && left) {
			uint32_t take = len < CHUNK ? len : CHUNK, use;

			if (loc_pread(f, rc->buf, take, off))
				return true;	/* there, but unreadable: that is for Retrieve to say */
			use = take < left ? take : left;
			crc = kvb_crc32c(crc, rc->buf, use);
			left -= use;
			off += take;
			len -= take;
		}
	}
	return crc == want;
}

/* The parts from @f on that belong together; *@whole when that is a version. */
static size_t gather(struct recovery *rc, const struct found *f, size_t n, struct loc_ext *x,
		     bool *whole)
{
	struct loc_store *ls = rc->ls;
	const struct loc_slot *s0 = slot_at(ls, f->pos);
	uint64_t units = 0;
	size_t i;

	*whole = true;
	for (i = 0; i < n && i < LOC_MAX_PARTS && f[i].seq == f->seq; i++) {
		const struct loc_slot *s = slot_at(ls, f[i].pos);

		x[i] = (struct loc_ext){ .pos = f[i].pos, .units = le32toh(s->units) };
		units += x[i].units;
		if (f[i].part != i || s->nparts != s0->nparts || s->vlen != s0->vlen ||
		    s->vcrc != s0->vcrc || s->klen != s0->klen || memcmp(s->key, s0->key, 16))
			*whole = false;
	}
	if (i != le16toh(s0->nparts) || units != loc_units(ls, le32toh(s0->vlen)))
		*whole = false;
	return i;
}

static int settle_later(struct recovery *rc)
{
	struct loc_store *ls = rc->ls;
	struct loc_ext *x = malloc(LOC_MAX_PARTS * sizeof(*x));
	int ret = 0;

	if (!x)
		return -ENOMEM;
	if (rc->nlater)
		qsort(rc->later, rc->nlater, sizeof(*rc->later), found_cmp);
	for (size_t i = 0, n; i < rc->nlater && !ret; i += n) {
		const struct found *f = &rc->later[i];
		const struct loc_slot *s = slot_at(ls, f->pos);
		bool good;

		n = gather(rc, f, rc->nlater - i, x, &good);
		if (good && f->seq > rc->mark)
			good = value_landed(rc, x, n);
		if (!good) {
			atomic_fetch_add(&ls->slots_dropped, n);
			ret = lose(rc, x, n);
			continue;
		}
		if (f->seq > rc->mark)
			loc_ids_add(&ls->ids, le64toh(s->id_uid), le64toh(s->id_seq));
		ret = candidate(rc, x, n);
	}
	free(x);
	return ret;
}

/* ---- Clearing what lost ---- */

static int pos_cmp(const void *a, const void *b)
{
	const loc_pos *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Every block with a slot in @v, once. */
static int write_blocks(struct recovery *rc, loc_pos *v, size_t n)
{
	struct loc_store *ls = rc->ls;
	loc_pos last = UINT64_MAX;

	if (n)
		qsort(v, n, sizeof(*v), pos_cmp);
	for (size_t i = 0; i < n; i++) {
		struct loc_ag *ag = loc_ag_of(ls, v[i]);
		uint32_t blk = (loc_pos_unit(v[i]) - ag->first) / LOC_TBLK_SLOTS;
		int ret;

		if (v[i] / LOC_TBLK_SLOTS == last)
			continue;
		last = v[i] / LOC_TBLK_SLOTS;
		loc_table_image(ag, blk, rc->buf);
		ret = loc_pwrite(&ls->file[ag->file], rc->buf, LOC_BLK, loc_table_off(ls, ag, blk));
		if (ret)
			return ret;
	}
	return 0;
}

static void drop_slots(struct loc_store *ls, const loc_pos *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct loc_ag *ag = loc_ag_of(ls, v[i]);

		loc_table_drop(ag, loc_pos_unit(v[i]) - ag->first);
	}
}

static int clear_losers(struct recovery *rc)
{
	struct loc_store *ls = rc->ls;
	int ret = 0;

	for (size_t i = 0; i < rc->nlosers; i++) {
		if (POS_ADD(rc, dirty, rc->losers[i]))
			return -ENOMEM;
	}
	if (rc->ndirty) {
		drop_slots(ls, rc->losers, rc->nlosers);
		ret = write_blocks(rc, rc->dirty, rc->ndirty);
		if (!ret)
			ret = loc_sync_all(ls);
	}
	/* With all older slots durably free, tombstones have done their work. */
	if (!ret)
		drop_slots(ls, rc->tombs, rc->ntombs);
	return ret;
}

/* ---- Free maps ---- */

static bool ent_overlaps(struct loc_store *ls, const struct loc_ext *x, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct loc_ag *ag = loc_ag_of(ls, x[i].pos);

		if (loc_map_any(ag, loc_pos_unit(x[i].pos) - ag->first, x[i].units))
			return true;
		/* At once: parts of one value may overlap too. */
		loc_map_set(ag, loc_pos_unit(x[i].pos) - ag->first, x[i].units);
		ag->free -= x[i].units;
	}
	return false;
}

/* Tombstones leave the index; what remains takes its units. */
static int settle_shard(struct recovery *rc, struct loc_shard *sh)
{
	struct loc_store *ls = rc->ls;
	struct loc_key at = { 0 };
	struct loc_bt_iter it;
	struct loc_ent *e;
	bool after = false;

	while ((e = loc_bt_seek(&sh->index, &at, after, &it))) {
		struct loc_ext one = { 0 };
		const struct loc_ext *x = &one;
		uint32_t n = 1;

		for (; e; e = loc_bt_next(&it)) {
			at = (struct loc_key){ .hi = e->hi, .lo = e->lo, .klen = e->klen };
			after = true;
			n = 1;
			x = &one;
			if (e->flags & LOC_ENT_TOMB)
				break;
			if (e->flags & LOC_ENT_MULTI) {
				x = e->extv->e;
				n = e->extv->n;
			} else {
				one.pos = e->pos;
				one.units = loc_units(ls, e->vlen);
			}
			if (ent_overlaps(ls, x, n))
				break;
		}
		if (!e)
			break;
		if (!(e->flags & LOC_ENT_TOMB)) {
			/* Never written so; units of the claims stay taken until the next start. */
			if (slot_bad(rc, x[0].pos, "claims units of another value"))
				return -ENOMEM;
			if (e->flags & LOC_ENT_MULTI)
				free(e->extv);
		}
		loc_bt_remove(&sh->index, &at);
	}
	return 0;
}

static void settle_bad(struct recovery *rc)
{
	struct loc_store *ls = rc->ls;

	for (size_t i = 0; i < rc->nbad; i++) {
		struct loc_ag *ag = loc_ag_of(ls, rc->bad[i]);
		uint32_t idx = loc_pos_unit(rc->bad[i]) - ag->first;

		if (loc_map_any(ag, idx, 1))
			continue;
		loc_map_set(ag, idx, 1);
		ag->free--;
		atomic_fetch_add(&ls->lost_units, 1);
	}
}

/* Dealt out in turn, and so that each shard has some of every member near the front. */
static void share_groups(struct loc_store *ls)
{
	uint32_t left = ls->nags;
	uint64_t free = 0;

	for (uint32_t k = 0; left; k++) {
		for (unsigned int i = 0; i < ls->nfiles; i++) {
			const struct loc_file *f = &ls->file[i];
			struct loc_ag *ag;
			struct loc_shard *sh;

			if (k >= f->nags)
				continue;
			ag = &ls->ag[f->first_ag + k];
			sh = ls->sh[(k + i) % ls->nshards];
			atomic_store(&ag->owner, sh->id);
			loc_ag_link(sh, ag);
			free += ag->free;
			left--;
		}
	}
	atomic_store(&ls->free_units, free);
}

static void report(const struct recovery *rc)
{
	struct loc_store *ls = rc->ls;
	uint64_t bad = atomic_load(&ls->slots_bad), rep = atomic_load(&ls->slots_repaired);

	kvb_log(KVB_LOG_INFO, "local: %s: %llu keys, %llu of %llu units free; %zu superseded, "
		"%llu without their value", ls->file[0].path,
		(unsigned long long)atomic_load(&ls->keys),
		(unsigned long long)atomic_load(&ls->free_units),
		(unsigned long long)ls->total_units, rc->nlosers,
		(unsigned long long)atomic_load(&ls->slots_dropped));
	if (bad || rep)
		kvb_log(KVB_LOG_WARN, "local: %s: headers damaged: %llu, put right: %llu",
			ls->file[0].path, (unsigned long long)bad, (unsigned long long)rep);
}

/*
 * Count this opening before anything on disk changes: operation ids found now are not found
 * again once what they wrote is superseded, so that a later run must know to be unsure.
 */
static int count_run(struct recovery *rc)
{
	struct loc_store *ls = rc->ls;

	ls->run++;
	loc_mark_fill(ls, rc->buf, rc->mark, ++ls->fl.mark_gen);
	return loc_pwrite(&ls->file[0], rc->buf, LOC_BLK, loc_mark_off(ls->fl.mark_gen));
}

int loc_recover(struct loc_store *ls, struct kvb_err *err)
{
	struct recovery rc = { .ls = ls };
	uint64_t keys = 0;
	int ret;

	if (posix_memalign(&rc.buf, LOC_BLK, CHUNK))
		return kvb_fail(err, ENOMEM, "out of memory");
	/*
	 * What a process that died left in a volatile cache first: what wins must be durable
	 * before what lost is cleared, and slots that look free before their units are used.
	 */
	ret = loc_sync_all(ls);
	if (ret) {
		free(rc.buf);
		return kvb_fail(err, -ret, "%s: flush: %s", ls->file[0].path, strerror(-ret));
	}
	ret = loc_mark_read(ls, &rc.mark, &ls->fl.mark_gen);
	if (ret == -EIO)
		ret = 0;	/* unreadable: everything is checked */
	rc.max_seq = rc.mark;
	if (!ret)
		ret = count_run(&rc);
	for (unsigned int i = 0; i < ls->nfiles && !ret; i++)
		ret = scan_file(&rc, i);
	if (!ret)
		ret = settle_later(&rc);
	for (unsigned int i = 0; i < ls->nshards && !ret; i++) {
		ret = settle_shard(&rc, ls->sh[i]);
		keys += ls->sh[i]->index.count;
	}
	if (!ret)
		ret = clear_losers(&rc);
	if (!ret) {
		settle_bad(&rc);
		if (ls->ids.n)
			qsort(ls->ids.v, ls->ids.n, sizeof(*ls->ids.v), id_cmp);
		atomic_store(&ls->keys, keys);
		atomic_store(&ls->next_seq, rc.max_seq + 1);
		ls->fl.mark_disk = rc.mark;
		share_groups(ls);
		report(&rc);
	} else {
		ret = kvb_fail(err, -ret, "%s: recovery: %s", ls->file[0].path, strerror(-ret));
	}
	free(rc.buf);
	free(rc.later);
	free(rc.losers);
	free(rc.tombs);
	free(rc.bad);
	free(rc.dirty);
	return ret;
}
