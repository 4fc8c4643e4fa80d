/* SPDX-License-Identifier: MIT */
#include "core/dbline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/qp.h"
#include "core/reactor_priv.h"

#define PAGE 4096u

struct kvb_dbline {
	uint32_t words[KVB_BAR_LINE_MAX / 4];	/* as last read */
	uint64_t seen;				/* in which look; 0: it must be read */
	struct kvb_dblines *of;
	struct kvb_db *members;			/* never none */
	unsigned int len;			/* bytes */
	/* What makes it this line. Without a known page it is one queue pair's alone. */
	uint64_t session, page;
	unsigned int index;			/* of the page's lines */
	struct kvb_dbline *next;		/* of its bucket */
};

static struct kvb_dbline **bucket(struct kvb_dblines *l, uint64_t page, unsigned int index)
{
	return &l->buckets[(page + index) % KVB_DBLINE_BUCKETS];
}

static struct kvb_dbline *find(struct kvb_dblines *l, uint64_t session, uint64_t page,
			       unsigned int index)
{
	struct kvb_dbline *line = *bucket(l, page, index);

	while (line && (line->session != session || line->page != page || line->index != index))
		line = line->next;
	return line;
}

static struct kvb_dbline *make(struct kvb_dblines *l, uint64_t session, uint64_t page,
			       unsigned int index)
{
	struct kvb_dbline **b = bucket(l, page, index);
	struct kvb_dbline *line = calloc(1, sizeof(*line));

	if (!line)
		return NULL;
	line->of = l;
	line->session = session;
	line->page = page;
	line->index = index;
	if (page) {
		line->next = *b;
		*b = line;
	}
	return line;
}

static void drop(struct kvb_dbline *line)
{
	struct kvb_dbline **p = bucket(line->of, line->page, line->index);

	if (line->page) {
		while (*p != line)
			p = &(*p)->next;
		*p = line->next;
	}
	free(line);
}

static int join(struct kvb_dblines *l, struct kvb_db *db, struct kvb_qp *qp, const char *at,
		uint64_t page)
{
	/* Where nobody shares it, a word will do. */
	unsigned int len = page ? kvb_bar_line() : 8, in_page = (unsigned int)((uintptr_t)at % PAGE);
	struct kvb_dbline *line = NULL;

	db->qp = qp;
	db->at = at - in_page % len;
	db->word = in_page % len / 4;
	if (page)
		line = find(l, qp->session, page, in_page / len);
	else if (qp->db[0].line && qp->db[0].at == db->at)
		line = qp->db[0].line;
	if (!line)
		line = make(l, qp->session, page, in_page / len);
	if (!line)
		return -ENOMEM;
	line->len = len;
	db->line = line;
	db->next = line->members;
	line->members = db;
	line->seen = 0;
	return 0;
}

static void leave(struct kvb_db *db)
{
	struct kvb_db **p;

	if (!db->line)
		return;
	for (p = &db->line->members; *p != db; p = &(*p)->next)
		;
	*p = db->next;
	if (!db->line->members)
		drop(db->line);
	db->line = NULL;
}

int kvb_db_join(struct kvb_reactor *r, struct kvb_qp *qp)
{
	/* Only of the page that the first is in is it known which one it is. */
	bool same = (uintptr_t)qp->sq_db / PAGE == (uintptr_t)qp->cq_db / PAGE;
	int rc = join(&r->dblines, &qp->db[0], qp, qp->sq_db, qp->db_page);

	if (!rc)
		rc = join(&r->dblines, &qp->db[1], qp, qp->cq_db, same ? qp->db_page : 0);
	if (rc)
		kvb_db_leave(qp);
	return rc;
}

void kvb_db_leave(struct kvb_qp *qp)
{
	leave(&qp->db[0]);
	leave(&qp->db[1]);
}

void kvb_db_forget(struct kvb_qp *qp)
{
	for (int i = 0; i < 2; i++) {
		if (qp->db[i].line)
			qp->db[i].line->seen = 0;
	}
}

/*
 * Through the mapping of any queue pair whose memory is there. If it goes meanwhile, what was read
 * may be what was put in its place, and its neighbours' doorbells have not become zero.
 */
static bool read_anew(struct kvb_dbline *line)
{
	for (const struct kvb_db *db = line->members; db; db = db->next) {
		if (kvb_qp_dead(db->qp))
			continue;
		kvb_bar_read_line(line->words, db->at, line->len);
		if (__builtin_expect(kvb_qp_dead(db->qp), 0))
			continue;
		line->seen = line->of->look;
		return true;
	}
	return false;
}

uint32_t kvb_db_read(struct kvb_db *db)
{
	struct kvb_dbline *line = db->line;

	if (line->seen != line->of->look && !read_anew(line))
		return KVB_DB_GONE;
	return line->words[db->word];
}
