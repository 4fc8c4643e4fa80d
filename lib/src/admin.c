/* SPDX-License-Identifier: MIT */
/* Admin commands, reports and settings over the control socket. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "impl.h"

#define REPORT_MAX	(64u << 20)

int gkv_admin(struct gkv *g, const void *sqe, void *cqe, void *data, uint32_t *data_len)
{
	uint32_t len = data_len ? *data_len : 0;
	struct {
		struct gkv_msg_admin req;
		struct gkv_msg_admin_reply reply;
	} *m;
	int ret;

	if (len > GKV_CTL_DATA || (len && !data))
		return gkvi_err(-EINVAL, "%u bytes of admin data, the limit is %d", len,
				data ? GKV_CTL_DATA : 0);
	m = malloc(sizeof(*m));
	if (!m)
		return gkvi_err(-ENOMEM, "out of memory");
	gkvi_hdr(&m->req.hdr, GKV_MSG_ADMIN, sizeof(m->req));
	memcpy(&m->req.sqe, sqe, sizeof(m->req.sqe));
	m->req.data_len = htole32(len);
	if (len)
		memcpy(m->req.data, data, len);
	pthread_mutex_lock(&g->lock);
	ret = gkvi_call(g, &m->req.hdr, sizeof(m->req), NULL, 0, &m->reply, sizeof(m->reply), NULL,
			0);
	pthread_mutex_unlock(&g->lock);
	if (ret)
		goto out;
	len = le32toh(m->reply.data_len);
	if (len > GKV_CTL_DATA) {
		ret = gkvi_err(-EPROTO, "kvbridged returned %u bytes of admin data", len);
		goto out;
	}
	if (cqe)
		memcpy(cqe, &m->reply.cqe, sizeof(m->reply.cqe));
	if (data && len)
		memcpy(data, m->reply.data, len);
	if (data_len)
		*data_len = len;
out:
	free(m);
	return ret;
}

/* One piece of a report. Caller holds g->lock. */
static int query_piece(struct gkv *g, uint32_t what, uint64_t offset, struct gkv_msg_query_reply *r)
{
	struct gkv_msg_query m;
	int ret;

	gkvi_hdr(&m.hdr, GKV_MSG_QUERY, sizeof(m));
	m.what = htole32(what);
	m.offset = htole64(offset);
	ret = gkvi_call(g, &m.hdr, sizeof(m), NULL, 0, r, sizeof(*r), NULL, 0);
	if (ret)
		return ret;
	if (le32toh(r->len) > sizeof(r->data) || le64toh(r->total) > REPORT_MAX ||
	    offset + le32toh(r->len) > le64toh(r->total) ||
	    (!r->len && offset < le64toh(r->total)))
		return gkvi_err(-EPROTO, "kvbridged sent a malformed report");
	return 0;
}

int gkv_query(struct gkv *g, uint32_t what, char **json)
{
	struct gkv_msg_query_reply r;
	uint64_t off = 0, total = 0;
	char *buf = NULL;
	int ret;

	*json = NULL;
	pthread_mutex_lock(&g->lock);
	for (;;) {
		ret = query_piece(g, what, off, &r);
		if (ret)
			break;
		/* The successor of a restarted daemon knows nothing of the snapshot: start over. */
		if (off && le64toh(r.total) != total) {
			off = 0;
			continue;
		}
		if (!off) {
			free(buf);
			total = le64toh(r.total);
			buf = malloc(total + 1);
			if (!buf) {
				ret = gkvi_err(-ENOMEM, "out of memory");
				break;
			}
		}
		memcpy(buf + off, r.data, le32toh(r.len));
		off += le32toh(r.len);
		if (off == total)
			break;
	}
	pthread_mutex_unlock(&g->lock);
	if (ret) {
		free(buf);
		return ret;
	}
	buf[total] = 0;
	*json = buf;
	return 0;
}

int gkv_set(struct gkv *g, const char *name, const char *value)
{
	struct gkv_msg_reply r;
	struct gkv_msg_set m;
	int ret;

	if (!name || !*name || strlen(name) >= sizeof(m.name))
		return gkvi_err(-EINVAL, "setting name: 1 to %zu bytes are possible",
				sizeof(m.name) - 1);
	if (!value || strlen(value) >= sizeof(m.value))
		return gkvi_err(-EINVAL, "value of %s: up to %zu bytes are possible", name,
				sizeof(m.value) - 1);
	gkvi_hdr(&m.hdr, GKV_MSG_SET, sizeof(m));
	strcpy(m.name, name);
	strcpy(m.value, value);
	pthread_mutex_lock(&g->lock);
	ret = gkvi_call(g, &m.hdr, sizeof(m), NULL, 0, &r, sizeof(r), NULL, 0);
	pthread_mutex_unlock(&g->lock);
	return ret;
}
