/* SPDX-License-Identifier: MIT */
/*
 * Documents as text for people. The daemon may add fields at any time: what a view
 * does not know is shown by its own name or left to -o json, never an error.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gkvctl.h"

#define CELL 128

void view_json(struct json_object *obj)
{
	int flags = JSON_C_TO_STRING_NOSLASHESCAPE;

	if (isatty(STDOUT_FILENO))
		flags |= JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED;
	puts(json_object_to_json_string_ext(obj, flags));
}

void view_doc(const struct ctl *c, struct json_object *doc)
{
	if (c->json)
		view_json(doc);
	else if (!c->quiet)
		view_object(doc, "", false);
}

int view_raw(const struct ctl *c, const void *data, uint32_t len)
{
	if (isatty(STDOUT_FILENO))
		return ctl_usage(c, "--raw writes bytes: send standard output to a file or a pipe");
	return fwrite(data, 1, len, stdout) == len ? EX_DONE : EX_FAILED;
}

void add_int(struct json_object *obj, const char *name, uint64_t v)
{
	json_object_object_add(obj, name, json_object_new_uint64(v));
}

void add_ascii(struct json_object *obj, const char *name, const char *p, size_t len)
{
	while (len && (p[len - 1] == ' ' || p[len - 1] == '\0'))
		len--;
	json_object_object_add(obj, name, json_object_new_string_len(p, (int)len));
}

void view_size(uint64_t bytes, char *buf, size_t len)
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double v = (double)bytes;
	int unit = -1;

	while (v >= 1024 && unit < 5) {
		v /= 1024;
		unit++;
	}
	if (unit < 0)
		snprintf(buf, len, "%" PRIu64 " B", bytes);
	else
		snprintf(buf, len, "%.1f %s", v, units[unit]);
}

void view_time_ns(uint64_t ns, char *buf, size_t len)
{
	uint64_t s = ns / 1000000000ull;

	if (ns < 1000)
		snprintf(buf, len, "%" PRIu64 " ns", ns);
	else if (ns < 1000000)
		snprintf(buf, len, "%.4g us", (double)ns / 1e3);
	else if (ns < 1000000000ull)
		snprintf(buf, len, "%.4g ms", (double)ns / 1e6);
	else if (s < 120)
		snprintf(buf, len, "%.4g s", (double)ns / 1e9);
	else if (s < 7200)
		snprintf(buf, len, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
	else if (s < 2 * 86400)
		snprintf(buf, len, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
	else
		snprintf(buf, len, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s / 3600 % 24);
}

static void scalar_text(struct json_object *v, char *buf, size_t len)
{
	if (!v)
		snprintf(buf, len, "-");
	else if (json_object_is_type(v, json_type_boolean))
		snprintf(buf, len, "%s", json_object_get_boolean(v) ? "yes" : "no");
	else if (json_object_is_type(v, json_type_double))
		snprintf(buf, len, "%.6g", json_object_get_double(v));
	else
		snprintf(buf, len, "%s", json_object_get_string(v));
}

/* [a, b] as "sep"-joined words. */
static void list_text(struct json_object *v, const char *sep, char *buf, size_t len)
{
	size_t used = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < json_object_array_length(v) && used + 1 < len; i++) {
		struct json_object *item = json_object_array_get_idx(v, i);
		int n = snprintf(buf + used, len - used, "%s%s", i ? sep : "",
				 item ? json_object_get_string(item) : "-");

		used += n > 0 ? (size_t)n : 0;
	}
	if (!buf[0])
		snprintf(buf, len, "-");
}

static bool is_scalar(struct json_object *v)
{
	return !json_object_is_type(v, json_type_object) && !json_object_is_type(v, json_type_array);
}

static bool is_number(struct json_object *v)
{
	return json_object_is_type(v, json_type_int) || json_object_is_type(v, json_type_double);
}

static void cell_text(struct json_object *v, enum view_kind kind, char *buf, size_t len)
{
	if (v && json_object_is_type(v, json_type_array)) {
		list_text(v, kind == VIEW_LIST ? " > " : ",", buf, len);
		return;
	}
	if (!v || !is_number(v)) {
		scalar_text(v, buf, len);
		return;
	}
	switch (kind) {
	case VIEW_BYTES:
		view_size(json_object_get_uint64(v), buf, len);
		break;
	case VIEW_HEX:
		snprintf(buf, len, "0x%" PRIx64, json_object_get_uint64(v));
		break;
	case VIEW_TIME_NS:
		view_time_ns(json_object_get_uint64(v), buf, len);
		break;
	case VIEW_TIME_S:
		view_time_ns((uint64_t)(json_object_get_double(v) * 1e9), buf, len);
		break;
	default:
		scalar_text(v, buf, len);
		break;
	}
}

void view_table(struct json_object *array, const struct view_col *cols, size_t ncols,
		const char *indent)
{
	size_t rows = json_object_array_length(array);
	size_t width[24];
	bool right[24];
	char cell[CELL];

	for (size_t k = 0; k < ncols; k++) {
		width[k] = strlen(cols[k].title);
		right[k] = rows > 0;
		for (size_t i = 0; i < rows; i++) {
			struct json_object *v = NULL;
			size_t n;

			json_object_object_get_ex(json_object_array_get_idx(array, i), cols[k].field,
						  &v);
			cell_text(v, cols[k].kind, cell, sizeof(cell));
			n = strlen(cell);
			if (n > width[k])
				width[k] = n;
			if (v && !is_number(v))
				right[k] = false;
		}
	}
	for (size_t i = 0; i <= rows; i++) {
		fputs(indent, stdout);
		for (size_t k = 0; k < ncols; k++) {
			struct json_object *v = NULL;

			if (i == 0) {
				snprintf(cell, sizeof(cell), "%s", cols[k].title);
			} else {
				json_object_object_get_ex(json_object_array_get_idx(array, i - 1),
							  cols[k].field, &v);
				cell_text(v, cols[k].kind, cell, sizeof(cell));
			}
			if (right[k])
				printf("%s%*s", k ? "  " : "", (int)width[k], cell);
			else if (k + 1 == ncols)
				printf("%s%s", k ? "  " : "", cell);
			else
				printf("%s%-*s", k ? "  " : "", (int)width[k], cell);
		}
		putchar('\n');
	}
}

/* A number that is 0, or a group of nothing else. */
static bool is_zero(struct json_object *v)
{
	if (v && json_object_is_type(v, json_type_object)) {
		json_object_object_foreach(v, name, member)
		{
			(void)name;
			if (!is_zero(member))
				return false;
		}
		return true;
	}
	return v && is_number(v) && json_object_get_double(v) == 0;
}

static void nested_indent(const char *indent, char *buf, size_t len)
{
	snprintf(buf, len, "%s  ", indent);
}

void view_rows(struct json_object *array, const char *indent)
{
	struct view_col cols[24];
	size_t n = 0;

	json_object_object_foreach(json_object_array_get_idx(array, 0), name, v)
	{
		if (is_scalar(v) && n < 24)
			cols[n++] = (struct view_col){ .field = name, .title = name };
	}
	view_table(array, cols, n, indent);
}

void view_object(struct json_object *obj, const char *indent, bool skip_zero)
{
	size_t width = 0;
	char sub[16], text[1024];

	nested_indent(indent, sub, sizeof(sub));
	json_object_object_foreach(obj, name, v)
	{
		if (strlen(name) > width && is_scalar(v) && !(skip_zero && is_zero(v)))
			width = strlen(name);
	}
	json_object_object_foreach(obj, key, val)
	{
		if (skip_zero && is_zero(val))
			continue;
		if (is_scalar(val)) {
			scalar_text(val, text, sizeof(text));
			printf("%s%-*s  %s\n", indent, (int)width, key, text);
		} else if (json_object_is_type(val, json_type_object)) {
			printf("%s%s:\n", indent, key);
			view_object(val, sub, skip_zero);
		} else if (json_object_array_length(val) > 0 &&
			   json_object_is_type(json_object_array_get_idx(val, 0),
					       json_type_object)) {
			printf("%s%s:\n", indent, key);
			view_rows(val, sub);
		} else {
			list_text(val, ", ", text, sizeof(text));
			printf("%s%-*s  %s\n", indent, (int)width, key, text);
		}
	}
}
