/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * NVMe Key-Value command set: wire format.
 *
 * Layouts follow the NVM Express Key Value Command Set Specification 1.0 ("KV")
 * and Base Specification 2.2 ("Base"). Every multi-byte field is little-endian.
 * The header stands alone: kernel, C90, C11, C++ and device code include it.
 */
#ifndef _UAPI_GKV_NVME_KV_H
#define _UAPI_GKV_NVME_KV_H

#include <linux/types.h>

#include "assert.h"

/* ---- Commands ---------------------------------------------------------- */

/* I/O opcodes (KV Fig 5). */
#define GKV_OP_FLUSH		0x00
#define GKV_OP_STORE		0x01
#define GKV_OP_RETRIEVE		0x02
#define GKV_OP_LIST		0x06
#define GKV_OP_DELETE		0x10
#define GKV_OP_EXIST		0x14

/* Admin opcodes (Base Fig 28). */
#define GKV_ADM_GET_LOG_PAGE	0x02
#define GKV_ADM_IDENTIFY	0x06
#define GKV_ADM_ABORT		0x08
#define GKV_ADM_SET_FEATURES	0x09
#define GKV_ADM_GET_FEATURES	0x0a
#define GKV_ADM_ASYNC_EVENT	0x0c

#define GKV_KEY_MAX		16	/* longest key of the command set, bytes */
#define GKV_NSID_ALL		0xffffffffu

/* SQE byte 1: FUSE in bits 1:0, PSDT in bits 7:6 (Base Fig 91). */
#define GKV_SQE_FUSE_MASK	0x03
#define GKV_SQE_RSVD_MASK	0x3c
#define GKV_SQE_PSDT_SHIFT	6
#define GKV_PSDT_PRP		0
#define GKV_PSDT_SGL		1	/* MPTR is a contiguous buffer */
#define GKV_PSDT_SGL_MPTR_SGL	2	/* MPTR is an SGL segment */

/* Store options, SQE byte 45 (KV Fig 29). */
#define GKV_STORE_MUST_EXIST	0x01	/* SIKE: fail with 87h if the key is absent */
#define GKV_STORE_MUST_NOT_EXIST 0x02	/* SINKE: fail with 89h if the key exists */
#define GKV_STORE_NO_COMPRESS	0x04
#define GKV_STORE_OPT_MASK	0x07

/* Retrieve options, SQE byte 45 (KV Fig 20). */
#define GKV_RETRIEVE_RAW	0x01
#define GKV_RETRIEVE_OPT_MASK	0x01

/*
 * gkv extension, used only on queue pairs that negotiated GKV_QP_F_CSUM:
 * a Store carries the crc32c of the value in CDW12 and sets this bit of CDW13;
 * a Retrieve's CQE carries the stored crc32c in DW1 and sets
 * GKV_CQE_DW0_CSUM_VALID in DW0, which bounds such values to 2 GiB - 1.
 */
#define GKV_CDW13_CSUM_VALID	0x00000001u
#define GKV_CQE_DW0_CSUM_VALID	0x80000000u

/**
 * struct gkv_sgl_desc - SGL descriptor (Base 4.3.2)
 * @addr: IOVA of the data block or of the next segment
 * @len: bytes
 * @rsvd: zero
 * @type: descriptor type in bits 7:4, subtype in bits 3:0
 */
struct gkv_sgl_desc {
	__le64	addr;
	__le32	len;
	__u8	rsvd[3];
	__u8	type;
};
GKV_ASSERT_SIZE(gkv_sgl_desc, 16);
GKV_ASSERT_OFFSET(gkv_sgl_desc, len, 8);
GKV_ASSERT_OFFSET(gkv_sgl_desc, type, 15);

#define GKV_SGL_DATA_BLOCK	0x00
#define GKV_SGL_BIT_BUCKET	0x10
#define GKV_SGL_SEGMENT		0x20
#define GKV_SGL_LAST_SEGMENT	0x30

/**
 * struct gkv_sqe - submission queue entry (KV Figs 6 to 31)
 * @opcode: GKV_OP_* or GKV_ADM_*
 * @flags: FUSE, PSDT
 * @cid: command identifier, unique among the queue's outstanding commands
 * @nsid: namespace
 * @key_lo: key bytes 0 to 7, in order (CDW2, CDW3)
 * @mptr: unused
 * @dptr: PRP entries or the first SGL descriptor
 * @cdw10: Store: value size in bytes; Retrieve, List: host buffer size in bytes
 * @klen: key length in bytes (CDW11[7:0])
 * @options: store or retrieve options (CDW11[15:8])
 * @cdw11_rsvd: zero
 * @cdw12: zero, or the value's crc32c (see GKV_CDW13_CSUM_VALID)
 * @cdw13: zero, or GKV_CDW13_CSUM_VALID
 * @key_hi: key bytes 8 to 15 (CDW14, CDW15)
 */
struct gkv_sqe {
	__u8	opcode;
	__u8	flags;
	__le16	cid;
	__le32	nsid;
	__u8	key_lo[8];
	__le64	mptr;
	union {
		struct {
			__le64	prp1;
			__le64	prp2;
		} prp;
		struct gkv_sgl_desc sgl;
	} dptr;
	__le32	cdw10;
	__u8	klen;
	__u8	options;
	__le16	cdw11_rsvd;
	__le32	cdw12;
	__le32	cdw13;
	__u8	key_hi[8];
};
GKV_ASSERT_SIZE(gkv_sqe, 64);
GKV_ASSERT_OFFSET(gkv_sqe, cid, 2);
GKV_ASSERT_OFFSET(gkv_sqe, nsid, 4);
GKV_ASSERT_OFFSET(gkv_sqe, key_lo, 8);
GKV_ASSERT_OFFSET(gkv_sqe, mptr, 16);
GKV_ASSERT_OFFSET(gkv_sqe, dptr, 24);
GKV_ASSERT_OFFSET(gkv_sqe, cdw10, 40);
GKV_ASSERT_OFFSET(gkv_sqe, klen, 44);
GKV_ASSERT_OFFSET(gkv_sqe, options, 45);
GKV_ASSERT_OFFSET(gkv_sqe, cdw12, 48);
GKV_ASSERT_OFFSET(gkv_sqe, cdw13, 52);
GKV_ASSERT_OFFSET(gkv_sqe, key_hi, 56);

/**
 * struct gkv_admin_sqe - admin command as plain dwords (Base Fig 91)
 * @opcode: GKV_ADM_*
 * @flags: FUSE, PSDT
 * @cid: command identifier
 * @nsid: namespace, or GKV_NSID_ALL
 * @cdw2: command dword 2
 * @cdw3: command dword 3
 * @mptr: unused
 * @prp1: unused over the control socket: data travels in the message
 * @prp2: likewise
 * @cdw10: command dwords 10 to 15
 */
struct gkv_admin_sqe {
	__u8	opcode;
	__u8	flags;
	__le16	cid;
	__le32	nsid;
	__le32	cdw2;
	__le32	cdw3;
	__le64	mptr;
	__le64	prp1;
	__le64	prp2;
	__le32	cdw10;
	__le32	cdw11;
	__le32	cdw12;
	__le32	cdw13;
	__le32	cdw14;
	__le32	cdw15;
};
GKV_ASSERT_SIZE(gkv_admin_sqe, 64);
GKV_ASSERT_OFFSET(gkv_admin_sqe, prp1, 24);
GKV_ASSERT_OFFSET(gkv_admin_sqe, cdw10, 40);
GKV_ASSERT_OFFSET(gkv_admin_sqe, cdw15, 60);

/* ---- Completions ------------------------------------------------------- */

/**
 * struct gkv_cqe - completion queue entry (Base 4.2.1)
 * @dw0: command result; Retrieve: full length of the value in bytes
 * @dw1: reserved, or the stored crc32c (see GKV_CDW13_CSUM_VALID)
 * @sqhd: submission queue head when the entry was made
 * @sqid: submission queue the command came from
 * @cid: command identifier
 * @status: phase in bit 0, status in bits 15:1
 *
 * The entry is valid once the phase bit has the value expected for this pass;
 * @cid and @status share the dword that is written last.
 */
struct gkv_cqe {
	__le32	dw0;
	__le32	dw1;
	__le16	sqhd;
	__le16	sqid;
	__le16	cid;
	__le16	status;
};
GKV_ASSERT_SIZE(gkv_cqe, 16);
GKV_ASSERT_OFFSET(gkv_cqe, sqhd, 8);
GKV_ASSERT_OFFSET(gkv_cqe, cid, 12);
GKV_ASSERT_OFFSET(gkv_cqe, status, 14);

/*
 * Status values as the 15 bits above the phase bit: SC 7:0, SCT 10:8, CRD 12:11,
 * M 13, DNR 14 (Base 4.2.3).
 */
#define GKV_STATUS(sct, sc)	((__u16)(((sct) << 8) | (sc)))
#define GKV_DNR			0x4000u
#define GKV_STATUS_CODE(st)	((__u16)((st) & 0x07ffu))	/* SCT and SC */

#define GKV_SC_SUCCESS			GKV_STATUS(0, 0x00)
#define GKV_SC_INVALID_OPCODE		GKV_STATUS(0, 0x01)
#define GKV_SC_INVALID_FIELD		GKV_STATUS(0, 0x02)
#define GKV_SC_CID_CONFLICT		GKV_STATUS(0, 0x03)
#define GKV_SC_DATA_TRANSFER		GKV_STATUS(0, 0x04)
#define GKV_SC_INTERNAL			GKV_STATUS(0, 0x06)
#define GKV_SC_ABORT_REQUESTED		GKV_STATUS(0, 0x07)
#define GKV_SC_ABORTED_SQ_DELETION	GKV_STATUS(0, 0x08)
#define GKV_SC_INVALID_NS		GKV_STATUS(0, 0x0b)
#define GKV_SC_SGL_SEGMENT		GKV_STATUS(0, 0x0d)
#define GKV_SC_SGL_COUNT		GKV_STATUS(0, 0x0e)
#define GKV_SC_SGL_LENGTH		GKV_STATUS(0, 0x0f)
#define GKV_SC_SGL_TYPE			GKV_STATUS(0, 0x11)
#define GKV_SC_INVALID_CMB		GKV_STATUS(0, 0x12)	/* data not where the mode says */
#define GKV_SC_PRP_OFFSET		GKV_STATUS(0, 0x13)
#define GKV_SC_OPERATION_DENIED		GKV_STATUS(0, 0x15)
#define GKV_SC_WRITE_PROTECTED		GKV_STATUS(0, 0x20)
#define GKV_SC_INTERRUPTED		GKV_STATUS(0, 0x21)
#define GKV_SC_TRANSIENT		GKV_STATUS(0, 0x22)
#define GKV_SC_CAPACITY			GKV_STATUS(0, 0x81)
#define GKV_SC_NS_NOT_READY		GKV_STATUS(0, 0x82)
#define GKV_SC_VALUE_SIZE		GKV_STATUS(0, 0x85)
#define GKV_SC_KEY_SIZE			GKV_STATUS(0, 0x86)
#define GKV_SC_KEY_NOT_FOUND		GKV_STATUS(0, 0x87)
#define GKV_SC_UNRECOVERED		GKV_STATUS(0, 0x88)
#define GKV_SC_KEY_EXISTS		GKV_STATUS(0, 0x89)
#define GKV_SC_INVALID_QID		GKV_STATUS(1, 0x01)
#define GKV_SC_INVALID_QSIZE		GKV_STATUS(1, 0x02)
#define GKV_SC_ABORT_LIMIT		GKV_STATUS(1, 0x03)
#define GKV_SC_AER_LIMIT		GKV_STATUS(1, 0x05)
#define GKV_SC_INVALID_LOG_PAGE		GKV_STATUS(1, 0x09)
#define GKV_SC_FEAT_NOT_SAVEABLE	GKV_STATUS(1, 0x0d)
#define GKV_SC_FEAT_NOT_CHANGEABLE	GKV_STATUS(1, 0x0e)
#define GKV_SC_FEAT_NOT_NS		GKV_STATUS(1, 0x0f)
#define GKV_SC_IOCS_COMBINATION		GKV_STATUS(1, 0x2b)
#define GKV_SC_INVALID_IOCS		GKV_STATUS(1, 0x2c)
#define GKV_SC_WRITE_FAULT		GKV_STATUS(2, 0x80)
#define GKV_SC_ACCESS_DENIED		GKV_STATUS(2, 0x86)

/**
 * struct gkv_list_entry - one key of a List result (KV Fig 16)
 * @klen: key length in bytes
 * @key: key bytes; the entry is zero padded to a multiple of 4
 *
 * A List result is a 32-bit count followed by that many entries.
 */
struct gkv_list_entry {
	__le16	klen;
	__u8	key[2];
};
GKV_ASSERT_SIZE(gkv_list_entry, 4);

#define GKV_LIST_HDR_SIZE	4u
#define GKV_LIST_ENTRY_SIZE(klen) ((2u + (klen) + 3u) & ~3u)

/* ---- Identify, features, log pages ------------------------------------- */

#define GKV_ADMIN_DATA_SIZE	4096u	/* every Identify structure */

#define GKV_CNS_NS		0x00
#define GKV_CNS_CTRL		0x01
#define GKV_CNS_ACTIVE_NS	0x02
#define GKV_CNS_NS_DESC		0x03
#define GKV_CNS_IOCS_NS		0x05
#define GKV_CNS_IOCS_CTRL	0x06
#define GKV_CNS_IOCS_ACTIVE_NS	0x07
#define GKV_CNS_INDEP_NS	0x08
#define GKV_CNS_IOCS		0x1c

#define GKV_CSI_NVM		0x00
#define GKV_CSI_KV		0x01

#define GKV_FEAT_ARBITRATION	0x01
#define GKV_FEAT_POWER_MGMT	0x02
#define GKV_FEAT_TEMP_THRESH	0x04
#define GKV_FEAT_VWC		0x06
#define GKV_FEAT_NUM_QUEUES	0x07
#define GKV_FEAT_IRQ_COALESCE	0x08
#define GKV_FEAT_IRQ_CONFIG	0x09
#define GKV_FEAT_ASYNC_EVENT	0x0b
#define GKV_FEAT_IOCS_PROFILE	0x19
#define GKV_FEAT_KV		0x20
#define GKV_FEAT_KV_EDNEK	0x01	/* Delete of a missing key fails with 87h */

#define GKV_LOG_SUPPORTED	0x00
#define GKV_LOG_ERROR		0x01
#define GKV_LOG_SMART		0x02
#define GKV_LOG_FW_SLOT		0x03
#define GKV_LOG_EFFECTS		0x05

/**
 * struct gkv_kv_format - one KV format (KV Fig 37)
 * @key_max: longest key in bytes
 * @rsvd2: zero
 * @additional: relative performance in bits 1:0
 * @value_max: longest value in bytes
 * @keys_max: most keys, 0 when no maximum is indicated
 * @rsvd12: zero
 */
struct gkv_kv_format {
	__le16	key_max;
	__u8	rsvd2;
	__u8	additional;
	__le32	value_max;
	__le32	keys_max;
	__u8	rsvd12[4];
};
GKV_ASSERT_SIZE(gkv_kv_format, 16);
GKV_ASSERT_OFFSET(gkv_kv_format, value_max, 4);

/**
 * struct gkv_id_ns_kv - Identify Namespace, CNS 05h CSI 01h (KV Fig 36)
 */
struct gkv_id_ns_kv {
	__le64	nsze;		/* bytes */
	__u8	rsvd8[8];
	__le64	nuse;		/* bytes */
	__u8	nsfeat;
	__u8	nkvf;		/* 0's based */
	__u8	nmic;
	__u8	rescap;
	__u8	fpi;
	__u8	kvfc;
	__u8	rsvd30[2];
	__le32	novg;		/* bytes */
	__le32	anagrpid;
	__u8	rsvd40[3];
	__u8	nsattr;		/* bit 0: write protected */
	__le16	nvmsetid;
	__le16	endgid;
	__u8	nguid[16];
	__u8	eui64[8];
	struct gkv_kv_format kvf[16];
	__u8	rsvd328[3512];
	__u8	vs[256];
};
GKV_ASSERT_SIZE(gkv_id_ns_kv, 4096);
GKV_ASSERT_OFFSET(gkv_id_ns_kv, nuse, 16);
GKV_ASSERT_OFFSET(gkv_id_ns_kv, nkvf, 25);
GKV_ASSERT_OFFSET(gkv_id_ns_kv, novg, 32);
GKV_ASSERT_OFFSET(gkv_id_ns_kv, nsattr, 43);
GKV_ASSERT_OFFSET(gkv_id_ns_kv, nguid, 48);
GKV_ASSERT_OFFSET(gkv_id_ns_kv, kvf, 72);
GKV_ASSERT_OFFSET(gkv_id_ns_kv, vs, 3840);

/**
 * struct gkv_id_ns - Identify Namespace of the NVM command set, CNS 00h: only what
 * clients test before they look at the command set
 */
struct gkv_id_ns {
	__le64	nsze;
	__le64	ncap;
	__le64	nuse;
	__u8	rsvd24[4072];
};
GKV_ASSERT_SIZE(gkv_id_ns, 4096);

/**
 * struct gkv_id_ns_indep - command set independent Identify Namespace, CNS 08h
 */
struct gkv_id_ns_indep {
	__u8	nsfeat;
	__u8	nmic;
	__u8	rescap;
	__u8	fpi;
	__le32	anagrpid;
	__u8	nsattr;
	__u8	rsvd9;
	__le16	nvmsetid;
	__le16	endgid;
	__u8	nstat;		/* bit 0: ready */
	__u8	rsvd15[4081];
};
GKV_ASSERT_SIZE(gkv_id_ns_indep, 4096);
GKV_ASSERT_OFFSET(gkv_id_ns_indep, nstat, 14);

/**
 * struct gkv_ns_id_desc - namespace identification descriptor header, CNS 03h
 */
struct gkv_ns_id_desc {
	__u8	nidt;
	__u8	nidl;
	__u8	rsvd[2];
};
GKV_ASSERT_SIZE(gkv_ns_id_desc, 4);

#define GKV_NIDT_EUI64		1
#define GKV_NIDT_NGUID		2
#define GKV_NIDT_UUID		3
#define GKV_NIDT_CSI		4

/**
 * struct gkv_id_ctrl - Identify Controller, CNS 01h (Base Fig 313)
 */
struct gkv_id_ctrl {
	__le16	vid;
	__le16	ssvid;
	char	sn[20];
	char	mn[40];
	char	fr[8];
	__u8	rab;
	__u8	ieee[3];
	__u8	cmic;
	__u8	mdts;
	__le16	cntlid;
	__le32	ver;
	__le32	rtd3r;
	__le32	rtd3e;
	__le32	oaes;
	__le32	ctratt;
	__u8	rsvd100[11];
	__u8	cntrltype;
	__u8	fguid[16];
	__u8	rsvd128[128];
	__le16	oacs;
	__u8	acl;
	__u8	aerl;
	__u8	frmw;
	__u8	lpa;
	__u8	elpe;
	__u8	npss;
	__u8	avscc;
	__u8	apsta;
	__le16	wctemp;
	__le16	cctemp;
	__u8	rsvd270[50];
	__le16	kas;
	__u8	rsvd322[190];
	__u8	sqes;
	__u8	cqes;
	__le16	maxcmd;
	__le32	nn;
	__le16	oncs;
	__le16	fuses;
	__u8	fna;
	__u8	vwc;
	__u8	rsvd526[10];
	__le32	sgls;
	__u8	rsvd540[228];
	char	subnqn[256];
	__u8	rsvd1024[1024];
	__u8	psd0[32];
	__u8	rsvd2080[2016];
};
GKV_ASSERT_SIZE(gkv_id_ctrl, 4096);
GKV_ASSERT_OFFSET(gkv_id_ctrl, mdts, 77);
GKV_ASSERT_OFFSET(gkv_id_ctrl, cntlid, 78);
GKV_ASSERT_OFFSET(gkv_id_ctrl, ver, 80);
GKV_ASSERT_OFFSET(gkv_id_ctrl, oaes, 92);
GKV_ASSERT_OFFSET(gkv_id_ctrl, cntrltype, 111);
GKV_ASSERT_OFFSET(gkv_id_ctrl, oacs, 256);
GKV_ASSERT_OFFSET(gkv_id_ctrl, acl, 258);
GKV_ASSERT_OFFSET(gkv_id_ctrl, aerl, 259);
GKV_ASSERT_OFFSET(gkv_id_ctrl, lpa, 261);
GKV_ASSERT_OFFSET(gkv_id_ctrl, kas, 320);
GKV_ASSERT_OFFSET(gkv_id_ctrl, sqes, 512);
GKV_ASSERT_OFFSET(gkv_id_ctrl, cqes, 513);
GKV_ASSERT_OFFSET(gkv_id_ctrl, maxcmd, 514);
GKV_ASSERT_OFFSET(gkv_id_ctrl, nn, 516);
GKV_ASSERT_OFFSET(gkv_id_ctrl, oncs, 520);
GKV_ASSERT_OFFSET(gkv_id_ctrl, vwc, 525);
GKV_ASSERT_OFFSET(gkv_id_ctrl, sgls, 536);
GKV_ASSERT_OFFSET(gkv_id_ctrl, subnqn, 768);

#define GKV_SGLS_BYTE_GRANULAR	0x00000001u
#define GKV_SGLS_BIT_BUCKET	0x00010000u
#define GKV_SGLS_LONGER		0x00040000u

/**
 * struct gkv_error_log_entry - Error Information log entry, log page 01h
 */
struct gkv_error_log_entry {
	__le64	error_count;
	__le16	sqid;
	__le16	cid;
	__le16	status;		/* phase in bit 0, as in the CQE */
	__le16	param_location;
	__le64	lba;
	__le32	nsid;
	__u8	vs;
	__u8	trtype;
	__u8	csi;
	__u8	opcode;
	__le64	cs;
	__le16	trtype_spec;
	__u8	rsvd42[21];
	__u8	log_version;
};
GKV_ASSERT_SIZE(gkv_error_log_entry, 64);
GKV_ASSERT_OFFSET(gkv_error_log_entry, nsid, 24);
GKV_ASSERT_OFFSET(gkv_error_log_entry, cs, 32);

/**
 * struct gkv_smart_log - SMART / Health Information, log page 02h
 *
 * The 128-bit counters are little-endian byte arrays.
 */
struct gkv_smart_log {
	__u8	critical_warning;
	__u8	temperature[2];		/* kelvin */
	__u8	avail_spare;		/* percent */
	__u8	spare_thresh;
	__u8	percent_used;
	__u8	endurance_critical;
	__u8	rsvd7[25];
	__u8	data_units_read[16];	/* thousands of 512 bytes */
	__u8	data_units_written[16];
	__u8	host_reads[16];
	__u8	host_writes[16];
	__u8	busy_time[16];		/* minutes */
	__u8	power_cycles[16];
	__u8	power_on_hours[16];
	__u8	unsafe_shutdowns[16];
	__u8	media_errors[16];
	__u8	num_err_log_entries[16];
	__le32	warning_temp_time;
	__le32	critical_temp_time;
	__le16	temp_sensor[8];
	__u8	rsvd216[296];
};
GKV_ASSERT_SIZE(gkv_smart_log, 512);
GKV_ASSERT_OFFSET(gkv_smart_log, data_units_read, 32);
GKV_ASSERT_OFFSET(gkv_smart_log, warning_temp_time, 192);

/**
 * struct gkv_fw_slot_log - Firmware Slot Information, log page 03h
 */
struct gkv_fw_slot_log {
	__u8	afi;
	__u8	rsvd1[7];
	char	frs[7][8];
	__u8	rsvd64[448];
};
GKV_ASSERT_SIZE(gkv_fw_slot_log, 512);

/**
 * struct gkv_effects_log - Commands Supported and Effects, log page 05h
 */
struct gkv_effects_log {
	__le32	acs[256];
	__le32	iocs[256];
	__u8	rsvd2048[2048];
};
GKV_ASSERT_SIZE(gkv_effects_log, 4096);

#define GKV_EFFECT_CSUPP	0x00000001u
#define GKV_EFFECT_LBCC		0x00000002u

#endif /* _UAPI_GKV_NVME_KV_H */
