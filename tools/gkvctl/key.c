/* SPDX-License-Identifier: MIT */
/*
 * Keys as text.
 */
#include <stdio.h>
#include <string.h>

#include "gkvctl.h"

static const char hex_prefix[] = "hex:";

static int hex_digit(char ch)
{
	if (ch >= '0' && ch <= '9')
		return ch - '0';
	if (ch >= 'a' && ch <= 'f')
		return ch - 'a' + 10;
	if (ch >= 'A' && ch <= 'F')
		return ch - 'A' + 10;
	return -1;
}

static const char *parse_hex(const char *text, uint8_t key[GKV_KEY_LEN], uint8_t *len)
{
	size_t digits = strlen(text);

	for (size_t i = 0; i < digits; i++) {
		if (hex_digit(text[i]) < 0)
			return "contains something that is no hex digit";
	}
	if (digits % 2)
		return "has an odd number of hex digits";
	if (digits == 0)
		return "is empty; a key has 1 to 16 bytes";
	if (digits > 2 * GKV_KEY_LEN)
		return "is too long; a key has 1 to 16 bytes, two digits each";
	for (size_t i = 0; i < digits / 2; i++)
		key[i] = (uint8_t)(hex_digit(text[2 * i]) << 4 | hex_digit(text[2 * i + 1]));
	*len = (uint8_t)(digits / 2);
	return NULL;
}

const char *key_parse(enum key_format format, const char *text, uint8_t key[GKV_KEY_LEN],
		      uint8_t *len)
{
	size_t n = strlen(text);

	memset(key, 0, GKV_KEY_LEN);
	if (format == KEY_HEX)
		return parse_hex(text, key, len);
	if (format == KEY_AUTO && !strncmp(text, hex_prefix, strlen(hex_prefix)))
		return parse_hex(text + strlen(hex_prefix), key, len);
	if (n == 0)
		return "is empty; a key has 1 to 16 bytes";
	if (n > GKV_KEY_LEN)
		return "is too long; a key has 1 to 16 bytes";
	memcpy(key, text, n);
	*len = (uint8_t)n;
	return NULL;
}

/* Bytes that mean nothing to a shell, so that a printed key can be pasted back. */
static bool plain_byte(uint8_t b)
{
	return (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || (b >= '0' && b <= '9') ||
	       (b && strchr("_-./:@%+=,", b));
}

static bool plain_key(const uint8_t *key, uint8_t len)
{
	if (len == 0 || key[0] == '-')
		return false;
	if (len >= strlen(hex_prefix) && !memcmp(key, hex_prefix, strlen(hex_prefix)))
		return false;
	for (uint8_t i = 0; i < len; i++) {
		if (!plain_byte(key[i]))
			return false;
	}
	return true;
}

static char *put_hex(char *p, const uint8_t *key, uint8_t len)
{
	for (uint8_t i = 0; i < len; i++)
		p += sprintf(p, "%02x", key[i]);
	return p;
}

static void put_plain(char *buf, const uint8_t *key, uint8_t len)
{
	memcpy(buf, key, len);
	buf[len] = '\0';
}

const char *key_print(enum key_format format, const uint8_t *key, uint8_t len,
		      char buf[KEY_TEXT_MAX])
{
	if (format == KEY_HEX)
		put_hex(buf, key, len);
	else if (format == KEY_TEXT || plain_key(key, len))
		put_plain(buf, key, len);
	else
		put_hex(stpcpy(buf, hex_prefix), key, len);
	return buf;
}

const char *key_file_name(const uint8_t *key, uint8_t len, char buf[KEY_TEXT_MAX])
{
	/* A leading dot covers "." and "..", and files that a shell would hide. */
	if (plain_key(key, len) && key[0] != '.' && !memchr(key, '/', len))
		put_plain(buf, key, len);
	else
		put_hex(stpcpy(buf, hex_prefix), key, len);
	return buf;
}

int ctl_key(const struct ctl *c, const char *text, uint8_t key[GKV_KEY_LEN], uint8_t *len)
{
	const char *why = key_parse(c->key_format, text, key, len);

	if (why)
		return ctl_usage(c, "key \"%s\" %s", text, why);
	if (*len > c->ns.key_max)
		return ctl_usage(c, "key \"%s\" has %u bytes, the limit of namespace %s is %u", text,
				 *len, c->ns.name, c->ns.key_max);
	return EX_DONE;
}

void key_to_json(const struct ctl *c, struct json_object *obj, const uint8_t *key, uint8_t len)
{
	char buf[KEY_TEXT_MAX];

	/* JSON text is UTF-8: bytes that may not be go in the form that is always safe. */
	key_print(c->key_format == KEY_TEXT ? KEY_AUTO : c->key_format, key, len, buf);
	json_object_object_add(obj, "key", json_object_new_string(buf));
	put_hex(buf, key, len);
	json_object_object_add(obj, "hex", json_object_new_string(buf));
}
