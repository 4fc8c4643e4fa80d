/* SPDX-License-Identifier: MIT */
#include "tracefile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "util.h"

/* Room for one more element of @size bytes in @array, which has @n. */
static void *grow(void *array, size_t n, size_t *room, size_t size)
{
	if (n < *room)
		return array;
	*room = *room ? 2 * *room : 1024;
	return realloc(array, *room * size);
}

struct loader {
	struct trace *t;
	size_t req_room;
	size_t id_room;
};

/* A member that must be a number when it is there. Returns -1 when it is something else. */
static int number(struct json_object *obj, const char *name, double *out)
{
	struct json_object *v;

	*out = 0;
	if (!json_object_object_get_ex(obj, name, &v))
		return 0;
	if (!json_object_is_type(v, json_type_int) && !json_object_is_type(v, json_type_double))
		return -1;
	*out = json_object_get_double(v);
	return *out >= 0 ? 0 : -1;
}

/* Returns NULL or what is wrong. */
static const char *add_request(struct loader *l, struct json_object *obj)
{
	struct trace *t = l->t;
	struct trace_req *r;
	struct json_object *ids;
	double ts, in, out;
	size_t n;

	if (!json_object_is_type(obj, json_type_object))
		return "not a JSON object";
	if (number(obj, "timestamp", &ts) || number(obj, "input_length", &in) ||
	    number(obj, "output_length", &out))
		return "timestamp, input_length and output_length must be numbers of 0 or more";
	if (!json_object_object_get_ex(obj, "hash_ids", &ids) ||
	    !json_object_is_type(ids, json_type_array))
		return "no array \"hash_ids\"";
	t->reqs = r = grow(t->reqs, t->n_reqs, &l->req_room, sizeof(*r));
	if (!r)
		return "out of memory";
	r += t->n_reqs;
	n = json_object_array_length(ids);
	*r = (struct trace_req){ ts, (uint64_t)in, (uint64_t)out, t->n_ids, n };
	for (size_t i = 0; i < n; i++) {
		struct json_object *id = json_object_array_get_idx(ids, i);

		if (!json_object_is_type(id, json_type_int))
			return "hash_ids must be whole numbers";
		t->ids = grow(t->ids, t->n_ids, &l->id_room, sizeof(*t->ids));
		if (!t->ids)
			return "out of memory";
		t->ids[t->n_ids++] = (uint64_t)json_object_get_int64(id);
	}
	t->n_reqs++;
	return NULL;
}

static const char *parse_line(struct loader *l, struct json_tokener *tok, const char *line,
			      size_t len)
{
	struct json_object *obj;
	const char *wrong;

	json_tokener_reset(tok);
	obj = json_tokener_parse_ex(tok, line, (int)len);
	if (json_tokener_get_error(tok) != json_tokener_success) {
		json_object_put(obj);
		return json_tokener_get_error(tok) == json_tokener_continue
			       ? "incomplete JSON"
			       : json_tokener_error_desc(json_tokener_get_error(tok));
	}
	if (strspn(line + json_tokener_get_parse_end(tok), " \t\r\n") !=
	    strlen(line + json_tokener_get_parse_end(tok)))
		wrong = "text after the JSON object";
	else
		wrong = add_request(l, obj);
	json_object_put(obj);
	return wrong;
}

int trace_load(const char *path, size_t skip, size_t limit, struct trace *t, char *err,
	       size_t err_len)
{
	struct loader l = { .t = t };
	struct json_tokener *tok;
	char *line = NULL;
	const char *wrong = NULL;
	size_t room = 0, line_no = 0, seen = 0;
	ssize_t len;
	FILE *f;

	memset(t, 0, sizeof(*t));
	f = fopen(path, "re");
	if (!f) {
		snprintf(err, err_len, "%s: %s", path, strerror(errno));
		return -1;
	}
	tok = json_tokener_new();
	if (!tok)
		wrong = "out of memory";
	while (!wrong && (!limit || t->n_reqs < limit) && (len = getline(&line, &room, f)) >= 0) {
		line_no++;
		if (strspn(line, " \t\r\n") == (size_t)len || seen++ < skip)
			continue;
		wrong = parse_line(&l, tok, line, (size_t)len);
	}
	if (!wrong && ferror(f))
		wrong = "read error";
	if (wrong)
		snprintf(err, err_len, "%s:%zu: %s", path, line_no, wrong);
	free(line);
	if (tok)
		json_tokener_free(tok);
	fclose(f);
	if (!wrong && !t->n_reqs) {
		snprintf(err, err_len, "%s: no requests", path);
		wrong = err;
	}
	if (wrong)
		trace_free(t);
	return wrong ? -1 : 0;
}

void trace_free(struct trace *t)
{
	free(t->reqs);
	free(t->ids);
	memset(t, 0, sizeof(*t));
}

int trace_ideal(const struct trace *t, struct trace_ideal *ideal)
{
	size_t mask = 1024;
	struct slot {
		uint64_t id;
		bool used;
	} * table;

	memset(ideal, 0, sizeof(*ideal));
	while (mask < 2 * t->n_ids)
		mask *= 2;
	table = calloc(mask--, sizeof(*table));
	if (!table)
		return -1;
	for (size_t r = 0; r < t->n_reqs; r++) {
		const uint64_t *ids = t->ids + t->reqs[r].first;
		bool prefix = true;

		for (size_t i = 0; i < t->reqs[r].blocks; i++) {
			size_t at = mix64(ids[i]) & mask;

			while (table[at].used && table[at].id != ids[i])
				at = (at + 1) & mask;
			ideal->blocks++;
			if (table[at].used) {
				ideal->hits += prefix;
				continue;
			}
			prefix = false;
			table[at] = (struct slot){ ids[i], true };
			ideal->distinct++;
		}
	}
	free(table);
	return 0;
}
