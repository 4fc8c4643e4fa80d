/* SPDX-License-Identifier: MIT */
/*
 * identify: the structures a controller returns, decoded or raw.
 */
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include <gkv/nvme_kv.h>

#include "gkvctl.h"

enum { OPT_RAW = OPT_CMD, OPT_CSI };

static struct {
	bool raw;
	uint64_t csi;
} args = { .csi = GKV_CSI_KV };

struct structure {
	const char *name;
	uint8_t cns;
	bool of_ns;		/* names a namespace in NSID */
	struct json_object *(*decode)(const void *data);
};

static void add_bytes(struct json_object *obj, const char *name, const uint8_t *p, size_t len)
{
	char hex[2 * 64 + 1];

	for (size_t i = 0; i < len && i < 64; i++)
		sprintf(hex + 2 * i, "%02x", p[i]);
	json_object_object_add(obj, name, json_object_new_string(hex));
}

static void add_version(struct json_object *obj, uint32_t ver)
{
	char text[32];

	snprintf(text, sizeof(text), "%u.%u.%u", ver >> 16, ver >> 8 & 0xff, ver & 0xff);
	json_object_object_add(obj, "ver", json_object_new_string(text));
}

static struct json_object *decode_ctrl(const void *data)
{
	const struct gkv_id_ctrl *d = data;
	struct json_object *o = json_object_new_object();

	add_int(o, "vid", le16toh(d->vid));
	add_int(o, "ssvid", le16toh(d->ssvid));
	add_ascii(o, "sn", d->sn, sizeof(d->sn));
	add_ascii(o, "mn", d->mn, sizeof(d->mn));
	add_ascii(o, "fr", d->fr, sizeof(d->fr));
	add_version(o, le32toh(d->ver));
	add_int(o, "mdts", d->mdts);
	add_int(o, "cntlid", le16toh(d->cntlid));
	add_int(o, "cntrltype", d->cntrltype);
	add_int(o, "oaes", le32toh(d->oaes));
	add_int(o, "oacs", le16toh(d->oacs));
	add_int(o, "acl", d->acl);
	add_int(o, "aerl", d->aerl);
	add_int(o, "lpa", d->lpa);
	add_int(o, "elpe", d->elpe);
	add_int(o, "sqes", d->sqes);
	add_int(o, "cqes", d->cqes);
	add_int(o, "maxcmd", le16toh(d->maxcmd));
	add_int(o, "nn", le32toh(d->nn));
	add_int(o, "oncs", le16toh(d->oncs));
	add_int(o, "vwc", d->vwc);
	add_int(o, "sgls", le32toh(d->sgls));
	add_ascii(o, "subnqn", d->subnqn, strnlen(d->subnqn, sizeof(d->subnqn)));
	return o;
}

static struct json_object *decode_kv_ns(const void *data)
{
	const struct gkv_id_ns_kv *d = data;
	struct json_object *o = json_object_new_object(), *formats = json_object_new_array();
	unsigned int n = (d->nkvf & 15) + 1u;

	add_int(o, "nsze", le64toh(d->nsze));
	add_int(o, "nuse", le64toh(d->nuse));
	add_int(o, "nsfeat", d->nsfeat);
	add_int(o, "nkvf", d->nkvf);
	add_int(o, "kvfc", d->kvfc);
	add_int(o, "novg", le32toh(d->novg));
	add_int(o, "nsattr", d->nsattr);
	add_bytes(o, "nguid", d->nguid, sizeof(d->nguid));
	add_bytes(o, "eui64", d->eui64, sizeof(d->eui64));
	for (unsigned int i = 0; i < n; i++) {
		struct json_object *f = json_object_new_object();

		add_int(f, "format", i);
		add_int(f, "key_max", le16toh(d->kvf[i].key_max));
		add_int(f, "value_max", le32toh(d->kvf[i].value_max));
		add_int(f, "keys_max", le32toh(d->kvf[i].keys_max));
		json_object_array_add(formats, f);
	}
	json_object_object_add(o, "formats", formats);
	return o;
}

static struct json_object *decode_nvm_ns(const void *data)
{
	const struct gkv_id_ns *d = data;
	struct json_object *o = json_object_new_object();

	add_int(o, "nsze", le64toh(d->nsze));
	add_int(o, "ncap", le64toh(d->ncap));
	add_int(o, "nuse", le64toh(d->nuse));
	return o;
}

static struct json_object *decode_indep(const void *data)
{
	const struct gkv_id_ns_indep *d = data;
	struct json_object *o = json_object_new_object();

	add_int(o, "nsfeat", d->nsfeat);
	add_int(o, "nmic", d->nmic);
	add_int(o, "rescap", d->rescap);
	add_int(o, "fpi", d->fpi);
	add_int(o, "nsattr", d->nsattr);
	add_int(o, "nstat", d->nstat);
	return o;
}

static struct json_object *decode_nsids(const void *data)
{
	const __le32 *ids = data;
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	for (size_t i = 0; i < GKV_ADMIN_DATA_SIZE / 4 && ids[i]; i++)
		json_object_array_add(list, json_object_new_int64(le32toh(ids[i])));
	json_object_object_add(o, "nsids", list);
	return o;
}

static struct json_object *decode_descs(const void *data)
{
	static const char *const names[] = { "", "eui64", "nguid", "uuid", "csi" };
	struct json_object *o = json_object_new_object();
	const uint8_t *p = data;
	struct gkv_ns_id_desc d;

	for (size_t at = 0; at + sizeof(d) <= GKV_ADMIN_DATA_SIZE; at += sizeof(d) + d.nidl) {
		char name[16];

		memcpy(&d, p + at, sizeof(d));
		if (!d.nidl || at + sizeof(d) + d.nidl > GKV_ADMIN_DATA_SIZE)
			break;
		snprintf(name, sizeof(name), "type%u", d.nidt);
		add_bytes(o, d.nidt >= 1 && d.nidt <= 4 ? names[d.nidt] : name, p + at + sizeof(d),
			  d.nidl);
	}
	return o;
}

static struct json_object *decode_kv_ctrl(const void *data)
{
	const __le32 *d = data;
	struct json_object *o = json_object_new_object();

	add_version(o, le32toh(d[0]));
	return o;
}

static struct json_object *decode_iocs(const void *data)
{
	const __le64 *d = data;
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	for (size_t i = 0; i < GKV_ADMIN_DATA_SIZE / 8 && d[i]; i++)
		json_object_array_add(list, json_object_new_uint64(le64toh(d[i])));
	json_object_object_add(o, "combinations", list);
	return o;
}

static const struct structure structures[] = {
	{ "ctrl", GKV_CNS_CTRL, false, decode_ctrl },
	{ "ns", GKV_CNS_IOCS_NS, true, decode_kv_ns },
	{ "nvm-ns", GKV_CNS_NS, true, decode_nvm_ns },
	{ "active", GKV_CNS_ACTIVE_NS, false, decode_nsids },
	{ "descs", GKV_CNS_NS_DESC, true, decode_descs },
	{ "kv-ctrl", GKV_CNS_IOCS_CTRL, false, decode_kv_ctrl },
	{ "kv-active", GKV_CNS_IOCS_ACTIVE_NS, false, decode_nsids },
	{ "indep-ns", GKV_CNS_INDEP_NS, true, decode_indep },
	{ "iocs", GKV_CNS_IOCS, false, decode_iocs },
};

#define NSTRUCTURES (sizeof(structures) / sizeof(structures[0]))

static const struct structure *find_structure(const char *text, uint64_t *cns)
{
	bool number = parse_u64(text, cns) == 0;

	for (size_t i = 0; i < NSTRUCTURES; i++) {
		if (number ? structures[i].cns == *cns : !strcmp(structures[i].name, text)) {
			*cns = structures[i].cns;
			return &structures[i];
		}
	}
	return NULL;
}

static int identify_run(struct ctl *c, int argc, char **argv)
{
	const char *what = argc ? argv[0] : "ctrl";
	uint64_t cns = UINT64_MAX;
	const struct structure *s = find_structure(what, &cns);
	struct gkv_admin_sqe sqe = { .opcode = GKV_ADM_IDENTIFY };
	_Alignas(8) uint8_t data[GKV_ADMIN_DATA_SIZE];
	struct json_object *doc;
	struct gkv_cqe cqe;
	uint32_t len = 0;
	int ret;

	if (!s && cns > 0xff)
		return ctl_usage(c, "structure \"%s\" is unknown; see gkvctl identify --help", what);
	if (!s && !args.raw)
		return ctl_usage(c, "structure %02llxh is not decoded: use --raw",
				 (unsigned long long)cns);
	ret = ctl_connect(c, GKV_CONNECT_CONTROL | GKV_CONNECT_NO_RECONNECT);
	if (!ret && (!s || s->of_ns)) {
		ret = ctl_open_ns(c, GKV_NS_RDONLY);
		sqe.nsid = htole32(c->ns.nsid);
	}
	if (ret)
		return ret;
	sqe.cdw10 = htole32((uint32_t)cns);
	if (cns >= GKV_CNS_IOCS_NS && cns <= GKV_CNS_IOCS_ACTIVE_NS)
		sqe.cdw11 = htole32((uint32_t)args.csi << 24);
	if (cns == GKV_CNS_IOCS)
		sqe.cdw10 |= htole32(0xffffu << 16);	/* this controller */
	memset(data, 0, sizeof(data));
	ret = ctl_admin(c, &sqe, &cqe, data, &len);
	if (ret)
		return ret;
	if (args.raw)
		return view_raw(c, data, len);
	if (len != GKV_ADMIN_DATA_SIZE)
		return ctl_fail(c, "the controller returned %u bytes, not %u", len,
				GKV_ADMIN_DATA_SIZE);
	doc = s->decode(data);
	view_doc(c, doc);
	json_object_put(doc);
	return EX_DONE;
}

static int identify_option(struct ctl *c, int val, const char *arg)
{
	if (val == OPT_RAW) {
		args.raw = true;
		return EX_DONE;
	}
	if (parse_u64(arg, &args.csi) || args.csi > 0xff)
		return ctl_usage(c, "--csi \"%s\" is no number from 0 to 255", arg);
	return EX_DONE;
}

static const struct option identify_opts[] = {
	{ "raw", no_argument, NULL, OPT_RAW },
	{ "csi", required_argument, NULL, OPT_CSI },
	{ NULL, 0, NULL, 0 },
};

const struct command cmd_identify = {
	.name = "identify",
	.args = "[STRUCTURE] [--raw] [--csi N]",
	.summary = "Show an Identify structure",
	.help = "STRUCTURE is a CNS number, or:\n"
		"  ctrl 01h (default)      controller\n"
		"  ns 05h                  key-value namespace\n"
		"  nvm-ns 00h              namespace, as the NVM command set sees it\n"
		"  active 02h              active namespaces\n"
		"  descs 03h               namespace identification descriptors\n"
		"  kv-ctrl 06h             controller, key-value part\n"
		"  kv-active 07h           active key-value namespaces\n"
		"  indep-ns 08h            namespace, command set independent part\n"
		"  iocs 1Ch                command set combinations\n"
		"Options:\n"
		"  --raw                   the bytes as the controller returned them\n"
		"  --csi N                 command set for 05h to 07h (1: key-value)\n",
	.opts = identify_opts,
	.option = identify_option,
	.max_args = 1,
	.run = identify_run,
};
