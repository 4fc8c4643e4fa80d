/* SPDX-License-Identifier: MIT */
/*
 * features and log: Get and Set Features, log pages.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <gkv/nvme_kv.h>

#include "gkvctl.h"

/* ---- features ---- */

static const struct feature {
	const char *name;
	const char *title;
	uint8_t fid;
	bool of_ns;
} features[] = {
	{ "arbitration", "Arbitration", GKV_FEAT_ARBITRATION, false },
	{ "power", "Power Management", GKV_FEAT_POWER_MGMT, false },
	{ "temperature", "Temperature Threshold", GKV_FEAT_TEMP_THRESH, false },
	{ "write-cache", "Volatile Write Cache", GKV_FEAT_VWC, false },
	{ "queues", "Number of Queues", GKV_FEAT_NUM_QUEUES, false },
	{ "irq-coalescing", "Interrupt Coalescing", GKV_FEAT_IRQ_COALESCE, false },
	{ "irq-config", "Interrupt Vector Configuration", GKV_FEAT_IRQ_CONFIG, false },
	{ "events", "Asynchronous Event Configuration", GKV_FEAT_ASYNC_EVENT, false },
	{ "iocs-profile", "I/O Command Set Profile", GKV_FEAT_IOCS_PROFILE, false },
	{ "kv", "Key Value Configuration", GKV_FEAT_KV, true },
};

#define NFEATURES (sizeof(features) / sizeof(features[0]))

static const struct feature *find_feature(const char *text, uint64_t *fid)
{
	bool number = parse_u64(text, fid) == 0;

	for (size_t i = 0; i < NFEATURES; i++) {
		if (number ? features[i].fid == *fid : !strcmp(features[i].name, text)) {
			*fid = features[i].fid;
			return &features[i];
		}
	}
	return NULL;
}

static void feature_meaning(uint8_t fid, uint32_t v, char *buf, size_t len)
{
	buf[0] = '\0';
	if (fid == GKV_FEAT_KV)
		snprintf(buf, len, "deleting a missing key %s",
			 v & GKV_FEAT_KV_EDNEK ? "fails with 87h" : "succeeds");
	else if (fid == GKV_FEAT_VWC)
		snprintf(buf, len, "write cache %s", v & 1 ? "on" : "off");
	else if (fid == GKV_FEAT_NUM_QUEUES)
		snprintf(buf, len, "%u submission and %u completion queues", (v & 0xffff) + 1,
			 (v >> 16) + 1);
}

static int features_run(struct ctl *c, int argc, char **argv)
{
	bool set = !strcmp(argv[0], "set");
	struct gkv_admin_sqe sqe = { .opcode = set ? GKV_ADM_SET_FEATURES : GKV_ADM_GET_FEATURES };
	uint64_t fid = UINT64_MAX, value = 0;
	uint8_t data[GKV_ADMIN_DATA_SIZE];
	const struct feature *f;
	struct json_object *doc;
	char meaning[128];
	struct gkv_cqe cqe;
	uint32_t len = 0, v;
	int ret;

	if (!set && strcmp(argv[0], "get"))
		return ctl_usage(c, "\"%s\" is neither get nor set", argv[0]);
	if (argc != (set ? 3 : 2))
		return ctl_usage(c, "usage: gkvctl features %s", cmd_features.args);
	f = find_feature(argv[1], &fid);
	if (!f && fid > 0xff)
		return ctl_usage(c, "feature \"%s\" is unknown; see gkvctl features --help",
				 argv[1]);
	if (set && (parse_u64(argv[2], &value) || value > UINT32_MAX))
		return ctl_usage(c, "value \"%s\" is no number from 0 to %u", argv[2], UINT32_MAX);
	ret = ctl_connect(c, GKV_CONNECT_CONTROL | GKV_CONNECT_NO_RECONNECT);
	if (!ret && f && f->of_ns) {
		ret = ctl_open_ns(c, set ? 0 : GKV_NS_RDONLY);
		sqe.nsid = htole32(c->ns.nsid);
	}
	if (ret)
		return ret;
	sqe.cdw10 = htole32((uint32_t)fid);
	sqe.cdw11 = htole32((uint32_t)value);
	ret = ctl_admin(c, &sqe, &cqe, data, &len);
	if (ret || c->quiet)
		return ret;
	v = set ? (uint32_t)value : le32toh(cqe.dw0);
	feature_meaning((uint8_t)fid, v, meaning, sizeof(meaning));
	if (!c->json) {
		printf("%s (%02x" "h) = 0x%08x%s%s\n", f ? f->title : "Feature",
		       (unsigned int)fid, v, meaning[0] ? ": " : "", meaning);
		return EX_DONE;
	}
	doc = json_object_new_object();
	json_object_object_add(doc, "feature", json_object_new_int64((int64_t)fid));
	json_object_object_add(doc, "name", json_object_new_string(f ? f->name : ""));
	json_object_object_add(doc, "value", json_object_new_int64(v));
	json_object_object_add(doc, "text", json_object_new_string(meaning));
	view_json(doc);
	json_object_put(doc);
	return EX_DONE;
}

const struct command cmd_features = {
	.name = "features",
	.args = "get FEATURE | set FEATURE VALUE",
	.summary = "Read or change a feature",
	.help = "FEATURE is a number, or:\n"
		"  arbitration 01h, power 02h, temperature 04h, write-cache 06h, queues 07h,\n"
		"  irq-coalescing 08h, irq-config 09h, events 0Bh, iocs-profile 19h,\n"
		"  kv 20h (of the namespace; bit 0: deleting a missing key fails)\n",
	.min_args = 2,
	.max_args = 3,
	.run = features_run,
};

/* ---- log ---- */

enum { OPT_RAW = OPT_CMD };

static bool log_raw;

/* A 128-bit counter; as a number while it fits one, which is for a very long time. */
static void add_u128(struct json_object *obj, const char *name, const uint8_t p[16])
{
	uint64_t lo, hi;

	memcpy(&lo, p, 8);
	memcpy(&hi, p + 8, 8);
	if (hi) {
		char text[40];

		snprintf(text, sizeof(text), "0x%016" PRIx64 "%016" PRIx64, le64toh(hi), le64toh(lo));
		json_object_object_add(obj, name, json_object_new_string(text));
	} else {
		add_int(obj, name, le64toh(lo));
	}
}

static struct json_object *decode_smart(const void *data, uint32_t len)
{
	const struct gkv_smart_log *d = data;
	struct json_object *o = json_object_new_object();

	(void)len;
	add_int(o, "critical_warning", d->critical_warning);
	add_int(o, "temperature_k", d->temperature[0] | (uint32_t)d->temperature[1] << 8);
	add_int(o, "avail_spare_percent", d->avail_spare);
	add_int(o, "spare_thresh_percent", d->spare_thresh);
	add_int(o, "percent_used", d->percent_used);
	add_u128(o, "data_units_read", d->data_units_read);
	add_u128(o, "data_units_written", d->data_units_written);
	add_u128(o, "host_reads", d->host_reads);
	add_u128(o, "host_writes", d->host_writes);
	add_u128(o, "busy_time_min", d->busy_time);
	add_u128(o, "power_cycles", d->power_cycles);
	add_u128(o, "power_on_hours", d->power_on_hours);
	add_u128(o, "unsafe_shutdowns", d->unsafe_shutdowns);
	add_u128(o, "media_errors", d->media_errors);
	add_u128(o, "num_err_log_entries", d->num_err_log_entries);
	return o;
}

static struct json_object *decode_errors(const void *data, uint32_t len)
{
	const struct gkv_error_log_entry *d = data;
	struct json_object *list = json_object_new_array(), *o = json_object_new_object();

	for (size_t i = 0; (i + 1) * sizeof(*d) <= len && d[i].error_count; i++) {
		struct json_object *e = json_object_new_object();
		uint16_t status = (uint16_t)(le16toh(d[i].status) >> 1);

		add_int(e, "error_count", le64toh(d[i].error_count));
		add_int(e, "sqid", le16toh(d[i].sqid));
		add_int(e, "cid", le16toh(d[i].cid));
		add_int(e, "nsid", le32toh(d[i].nsid));
		add_int(e, "opcode", d[i].opcode);
		add_int(e, "param_location", le16toh(d[i].param_location));
		add_int(e, "status", status);
		json_object_object_add(e, "text", json_object_new_string(gkv_status_name(status)));
		json_object_array_add(list, e);
	}
	json_object_object_add(o, "errors", list);
	return o;
}

static struct json_object *decode_firmware(const void *data, uint32_t len)
{
	const struct gkv_fw_slot_log *d = data;
	struct json_object *o = json_object_new_object();

	(void)len;
	add_int(o, "afi", d->afi);
	for (unsigned int i = 0; i < 7; i++) {
		char name[8];

		snprintf(name, sizeof(name), "frs%u", i + 1);
		if (d->frs[i][0])
			add_ascii(o, name, d->frs[i], strnlen(d->frs[i], sizeof(d->frs[i])));
	}
	return o;
}

static void add_effects(struct json_object *o, const char *name, const __le32 *effects)
{
	struct json_object *list = json_object_new_array();

	for (unsigned int i = 0; i < 256; i++) {
		struct json_object *e;
		uint32_t v = le32toh(effects[i]);

		if (!(v & GKV_EFFECT_CSUPP))
			continue;
		e = json_object_new_object();
		add_int(e, "opcode", i);
		add_int(e, "effects", v);
		json_object_array_add(list, e);
	}
	json_object_object_add(o, name, list);
}

static struct json_object *decode_effects(const void *data, uint32_t len)
{
	const struct gkv_effects_log *d = data;
	struct json_object *o = json_object_new_object();

	(void)len;
	add_effects(o, "admin", d->acs);
	add_effects(o, "io", d->iocs);
	return o;
}

static struct json_object *decode_supported(const void *data, uint32_t len)
{
	const __le32 *d = data;
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	for (unsigned int i = 0; i < 256 && (i + 1) * 4 <= len; i++) {
		if (le32toh(d[i]) & 1)
			json_object_array_add(list, json_object_new_int((int)i));
	}
	json_object_object_add(o, "pages", list);
	return o;
}

static const struct page {
	const char *name;
	uint8_t lid;
	uint32_t bytes;		/* asked for */
	struct json_object *(*decode)(const void *data, uint32_t len);
} pages[] = {
	{ "supported", GKV_LOG_SUPPORTED, 1024, decode_supported },
	{ "error", GKV_LOG_ERROR, 4096, decode_errors },
	{ "smart", GKV_LOG_SMART, sizeof(struct gkv_smart_log), decode_smart },
	{ "firmware", GKV_LOG_FW_SLOT, sizeof(struct gkv_fw_slot_log), decode_firmware },
	{ "effects", GKV_LOG_EFFECTS, sizeof(struct gkv_effects_log), decode_effects },
};

#define NPAGES (sizeof(pages) / sizeof(pages[0]))

static const struct page *find_page(const char *text, uint64_t *lid)
{
	bool number = parse_u64(text, lid) == 0;

	for (size_t i = 0; i < NPAGES; i++) {
		if (number ? pages[i].lid == *lid : !strcmp(pages[i].name, text)) {
			*lid = pages[i].lid;
			return &pages[i];
		}
	}
	return NULL;
}

/* Read up to @want bytes of a page, as many pieces as the control socket needs. */
static int read_log(struct ctl *c, uint8_t lid, uint8_t *data, uint32_t want, uint32_t *got)
{
	struct gkv_admin_sqe sqe = { .opcode = GKV_ADM_GET_LOG_PAGE };
	uint32_t dwords = want / 4 - 1;
	struct gkv_cqe cqe;

	sqe.nsid = htole32(GKV_NSID_ALL);
	sqe.cdw10 = htole32(lid | (dwords & 0xffff) << 16);
	sqe.cdw11 = htole32(dwords >> 16);
	/* Pages about commands are of one command set. */
	sqe.cdw14 = htole32((uint32_t)GKV_CSI_KV << 24);
	*got = 0;
	return ctl_admin(c, &sqe, &cqe, data, got);
}

static int log_run(struct ctl *c, int argc, char **argv)
{
	_Alignas(8) uint8_t data[GKV_ADMIN_DATA_SIZE] = { 0 };
	uint64_t lid = UINT64_MAX;
	const struct page *page = find_page(argv[0], &lid);
	struct json_object *doc;
	uint32_t len;
	int ret;

	(void)argc;
	if (!page && lid > 0xff)
		return ctl_usage(c, "log page \"%s\" is unknown; see gkvctl log --help", argv[0]);
	if (!page && !log_raw)
		return ctl_usage(c, "log page %02xh is not decoded: use --raw", (unsigned int)lid);
	ret = ctl_connect(c, GKV_CONNECT_CONTROL | GKV_CONNECT_NO_RECONNECT);
	if (!ret)
		ret = read_log(c, (uint8_t)lid, data, page ? page->bytes : sizeof(data), &len);
	if (ret)
		return ret;
	if (log_raw)
		return view_raw(c, data, len);
	doc = page->decode(data, len);
	view_doc(c, doc);
	json_object_put(doc);
	return EX_DONE;
}

static int log_option(struct ctl *c, int val, const char *arg)
{
	(void)c;
	(void)arg;
	if (val == OPT_RAW)
		log_raw = true;
	return EX_DONE;
}

static const struct option log_opts[] = {
	{ "raw", no_argument, NULL, OPT_RAW },
	{ NULL, 0, NULL, 0 },
};

const struct command cmd_log = {
	.name = "log",
	.args = "PAGE [--raw]",
	.summary = "Show a log page",
	.help = "PAGE is a number, or: supported 00h, error 01h, smart 02h, firmware 03h,\n"
		"effects 05h.\n"
		"  --raw                   the bytes as the controller returned them\n",
	.opts = log_opts,
	.option = log_option,
	.min_args = 1,
	.max_args = 1,
	.run = log_run,
};
