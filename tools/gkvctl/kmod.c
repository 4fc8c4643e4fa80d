/* SPDX-License-Identifier: MIT */
/*
 * What libkmod and /sys/module say of the module.
 */
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <libkmod.h>

#include "drv.h"

#define SYS_MODULE "/sys/module/" DRV_NAME

/* Errors come back as such; the library's own words would be a second line on stderr. */
static void no_log(void *data, int priority, const char *file, int line, const char *fn,
		   const char *format, va_list args)
{
	(void)data;
	(void)priority;
	(void)file;
	(void)line;
	(void)fn;
	(void)format;
	(void)args;
}

static int find_by_name(struct drv_module *m)
{
	struct kmod_list *list = NULL, *one;

	/* By modules.dep and aliases, as modprobe does. */
	if (!kmod_module_new_from_lookup(m->ctx, DRV_NAME, &list)) {
		kmod_list_foreach(one, list) {
			struct kmod_module *mod = kmod_module_get_module(one);

			if (!m->mod && !strcmp(kmod_module_get_name(mod), DRV_NAME))
				m->mod = mod;
			else
				kmod_module_unref(mod);
		}
		kmod_module_unref_list(list);
	}
	/* It may be loaded all the same. */
	return m->mod ? 0 : kmod_module_new_from_name(m->ctx, DRV_NAME, &m->mod);
}

int drv_module_get(const struct ctl *c, struct drv_module *m, const char *file)
{
	int ret;

	*m = (struct drv_module){ .ctx = kmod_new(NULL, NULL) };
	if (!m->ctx)
		return ctl_fail(c, "libkmod: %s", strerror(errno));
	kmod_set_log_fn(m->ctx, no_log, NULL);
	ret = file ? kmod_module_new_from_path(m->ctx, file, &m->mod) : find_by_name(m);
	if (ret) {
		drv_module_put(m);
		return ctl_fail(c, "%s: %s", file ? file : DRV_NAME, strerror(-ret));
	}
	if (file && strcmp(kmod_module_get_name(m->mod), DRV_NAME)) {
		drv_module_put(m);
		return ctl_usage(c, "%s: its name is not that of " DRV_NAME, file);
	}
	m->path = kmod_module_get_path(m->mod);
	return EX_DONE;
}

void drv_module_put(struct drv_module *m)
{
	kmod_module_unref(m->mod);
	kmod_unref(m->ctx);
	*m = (struct drv_module){ 0 };
}

const char *drv_module_state(const struct drv_module *m)
{
	int state = kmod_module_get_initstate(m->mod);

	return state < 0 ? "not loaded" : kmod_module_initstate_str(state);
}

static void add_string(struct json_object *o, const char *name, const char *v)
{
	json_object_object_add(o, name, json_object_new_string(v));
}

const char *drv_module_info(const struct drv_module *m, const char *key)
{
	static char value[256];
	struct kmod_list *list = NULL, *one;

	value[0] = '\0';
	if (kmod_module_get_info(m->mod, &list) < 0)
		return value;
	kmod_list_foreach(one, list) {
		if (!value[0] && !strcmp(kmod_module_info_get_key(one), key))
			snprintf(value, sizeof(value), "%s", kmod_module_info_get_value(one));
	}
	kmod_module_info_free_list(list);
	return value;
}

bool drv_module_has_param(const struct drv_module *m, const char *name, size_t len)
{
	struct kmod_list *list = NULL, *one;
	bool found = false;

	if (kmod_module_get_info(m->mod, &list) < 0)
		return false;
	kmod_list_foreach(one, list) {
		const char *value = kmod_module_info_get_value(one);

		/* "parmtype=NAME:TYPE" */
		if (!strcmp(kmod_module_info_get_key(one), "parmtype") &&
		    !strncmp(value, name, len) && value[len] == ':')
			found = true;
	}
	kmod_module_info_free_list(list);
	return found;
}

struct json_object *drv_module_file(const struct drv_module *m)
{
	static const char *const keys[] = { "version", "srcversion", "vermagic", "signer" };
	struct json_object *o;

	if (!m->path)
		return NULL;
	o = json_object_new_object();
	add_string(o, "file", m->path);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		char value[256];

		snprintf(value, sizeof(value), "%s", drv_module_info(m, keys[i]));
		value[strcspn(value, "\n")] = '\0';
		while (value[0] && value[strlen(value) - 1] == ' ')
			value[strlen(value) - 1] = '\0';
		json_object_object_add(o, keys[i],
				       value[0] ? json_object_new_string(value) : NULL);
	}
	return o;
}

static struct json_object *parameters(void)
{
	struct json_object *o = json_object_new_object();
	char path[320], value[128];
	DIR *dir = opendir(SYS_MODULE "/parameters");
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		snprintf(path, sizeof(path), SYS_MODULE "/parameters/%s", e->d_name);
		if (e->d_name[0] != '.' && !drv_read(path, value, sizeof(value)))
			add_string(o, e->d_name, value);
	}
	if (dir)
		closedir(dir);
	return o;
}

struct json_object *drv_module_live(const struct drv_module *m)
{
	static const char *const files[] = { "version", "srcversion", "taint" };
	struct kmod_list *holders, *one;
	struct json_object *o, *a;
	int refcount;

	if (kmod_module_get_initstate(m->mod) < 0)
		return NULL;
	o = json_object_new_object();
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		char path[64], value[128];

		snprintf(path, sizeof(path), SYS_MODULE "/%s", files[i]);
		if (!drv_read(path, value, sizeof(value)))
			add_string(o, files[i], value);
	}
	refcount = kmod_module_get_refcnt(m->mod);
	if (refcount >= 0)
		add_int(o, "refcount", (uint64_t)refcount);
	a = json_object_new_array();
	holders = kmod_module_get_holders(m->mod);
	kmod_list_foreach(one, holders) {
		struct kmod_module *holder = kmod_module_get_module(one);

		json_object_array_add(a, json_object_new_string(kmod_module_get_name(holder)));
		kmod_module_unref(holder);
	}
	kmod_module_unref_list(holders);
	json_object_object_add(o, "holders", a);
	json_object_object_add(o, "parameters", parameters());
	return o;
}
