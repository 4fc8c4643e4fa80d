/* SPDX-License-Identifier: MIT */
/*
 * What the local store keeps on its files and devices. All little-endian.
 *
 *   block 0              superblock
 *   blocks 1, 2          watermark, written in turn (only those of member 0 are used)
 *   table_off            header table: one slot per data unit
 *   data_off             data units
 *   last block but one   scratch, for tries (reach.c); older sets may have no room for it
 *   last block           copy of the superblock
 *
 * docs/local-store.md says why.
 */
#ifndef KVB_LOCAL_DISK_H
#define KVB_LOCAL_DISK_H

#include <assert.h>
#include <endian.h>
#include <stdint.h>

#define LOC_BLK		4096u	/* grain of everything but values */
#define LOC_TBLK_SLOTS	64u	/* slots in a block of the header table */
#define LOC_MAX_FILES	64u
#define LOC_VERSION	1u
#define LOC_SB_MAGIC	0x4c41434f4c564b47ull	/* "GKVLOCAL" */
#define LOC_WM_MAGIC	0x4b52414d4c564b47ull	/* "GKVLMARK" */

enum loc_sb_state { LOC_SB_FORMATTING = 1, LOC_SB_READY = 2 };

/* Both structures are checksummed over LOC_SB_SIZE bytes: one sector, so never torn. */
#define LOC_SB_SIZE	512u

struct loc_super {
	uint64_t magic;
	uint32_t crc;		/* of LOC_SB_SIZE bytes with this field zero */
	uint32_t version;
	uint8_t uuid[16];	/* of the set */
	uint32_t state;		/* enum loc_sb_state */
	uint32_t index;		/* of this member */
	uint32_t members;
	uint32_t unit;		/* bytes */
	uint32_t ag_units;	/* units of an allocation group */
	uint32_t rsvd;
	uint64_t size;		/* bytes of the member */
	uint64_t units;
	uint64_t table_off;	/* bytes */
	uint64_t data_off;	/* bytes */
	uint8_t pad[LOC_SB_SIZE - 88];
};
static_assert(sizeof(struct loc_super) == LOC_SB_SIZE, "superblock");

struct loc_mark {
	uint64_t magic;
	uint32_t crc;		/* as in the superblock */
	uint32_t run;		/* how often the store was opened */
	uint8_t uuid[16];
	uint64_t gen;		/* the greater one counts */
	uint64_t seq;		/* data of slots up to here is known to be in place */
	uint8_t pad[LOC_SB_SIZE - 48];
};
static_assert(sizeof(struct loc_mark) == LOC_SB_SIZE, "watermark");

/*
 * Any two types differ in at least four bits and each has four set, so that neither a
 * flipped bit nor two make one out of another or out of a free slot, which is all zero.
 */
#define LOC_LIVE	0x59u
#define LOC_TOMB	0xa6u

/*
 * The header of an extent, in the slot of its first unit. A value split over several
 * extents has one for each, all with the same seq.
 */
struct loc_slot {
	uint32_t crc;		/* of the rest, seeded with set, member and unit number */
	uint8_t type;
	uint8_t klen;
	uint16_t part;		/* of nparts */
	uint8_t key[16];
	uint64_t seq;		/* order of all mutations of the set */
	uint32_t vlen;		/* bytes of the whole value */
	uint32_t vcrc;		/* crc32c of the whole value */
	uint64_t id_uid;	/* operation that wrote it */
	uint64_t id_seq;
	uint32_t units;		/* of this extent */
	uint16_t nparts;
	uint16_t rsvd;
};
static_assert(sizeof(struct loc_slot) == 64, "slot");
static_assert(sizeof(struct loc_slot) * LOC_TBLK_SLOTS == LOC_BLK, "table block");

#define LOC_MAX_PARTS	65535u

#endif
