/* SPDX-License-Identifier: MIT */
/*
 * module load, unload: what went wrong, and what to do about it.
 */
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <libkmod.h>

#include "drv.h"

#define HOWTO "see docs/kernel.md"
#define NO_MODULES "this kernel was built without loadable modules"

static const char *kernel_release(void)
{
	static struct utsname u;

	return uname(&u) ? "?" : u.release;
}

/* ---- Why the kernel says no ---- */

/* May modules be loaded and unloaded at all? */
static int explain_eperm(const struct ctl *c, const char *verb)
{
	char text[128], *level;

	if (!drv_capable(CAP_SYS_MODULE))
		return ctl_fail(c, "%s the module takes root (CAP_SYS_MODULE)", verb);
	if (!drv_read("/proc/sys/kernel/modules_disabled", text, sizeof(text)) && text[0] == '1')
		return ctl_fail(c, "kernel.modules_disabled is set: no module is loaded or unloaded "
				   "until the next boot");
	/* "none [integrity] confidentiality" */
	if (!drv_read("/sys/kernel/security/lockdown", text, sizeof(text)) &&
	    (level = strchr(text, '[')) && strncmp(level, "[none]", 6)) {
		level[strcspn(level, "]")] = '\0';
		return ctl_fail(c, "the kernel is locked down (%s), as with Secure Boot, and takes "
				   "signed modules only: sign it, " HOWTO, level + 1);
	}
	return ctl_fail(c, "%s the module is not permitted here, though you have CAP_SYS_MODULE: is "
			   "this a container, or does a security module refuse? See dmesg", verb);
}

static int explain_load(const struct ctl *c, const struct drv_module *m, int err)
{
	const char *vermagic, *release = kernel_release();
	size_t len = strlen(release);

	switch (err) {
	case ENOSYS:
		return ctl_fail(c, NO_MODULES);
	case EPERM:
		return explain_eperm(c, "loading");
	case EKEYREJECTED:
	case ENOKEY:
	case ENODATA:
	case ENOPKG:
	case EBADMSG:
		return ctl_fail(c, "%s: the kernel takes modules with a signature that it knows "
				   "only (%s): sign it with an enrolled key, " HOWTO, m->path,
				strerror(err));
	case ENOEXEC:
		vermagic = drv_module_info(m, "vermagic");
		if (vermagic[0] && (strncmp(vermagic, release, len) || vermagic[len] != ' '))
			return ctl_fail(c, "%s was built for kernel %.*s, this is %s: build it for "
					   "this one, " HOWTO, m->path,
					(int)strcspn(vermagic, " "), vermagic, release);
		return ctl_fail(c, "%s is no module that this kernel (%s) can load; dmesg says why",
				m->path, release);
	case ENOENT:
		return ctl_fail(c, "%s uses symbols that this kernel does not have (dmesg names "
				   "them): build it anew, " HOWTO, m->path);
	case EINVAL:
	case ERANGE:
		if (!drv_module_info(m, "vermagic")[0])
			return ctl_fail(c, "%s is no module", m->path);
		return ctl_fail(c, "the kernel refused it: a parameter's value is wrong, or the "
				   "module is; dmesg says which");
	case EEXIST:
		return ctl_fail(c, "it is loaded already");
	case EBUSY:
		return ctl_fail(c, "it is just being loaded or unloaded: try again");
	default:
		return ctl_fail(c, "loading %s: %s; dmesg may say more", m->path, strerror(err));
	}
}

static int not_installed(const struct ctl *c)
{
	const char *release = kernel_release();
	char path[128];

	if (access("/proc/modules", F_OK))
		return ctl_fail(c, NO_MODULES);
	snprintf(path, sizeof(path), "/lib/modules/%s/modules.dep", release);
	if (drv_read(path, (char[2]){ 0 }, 2))
		return ctl_fail(c, "there are no modules for this kernel (%s is missing); is this a "
				   "container?", path);
	return ctl_fail(c, DRV_NAME " is not installed for kernel %s: dkms install gkv/"
			   GKV_BUILD_VERSION ", or depmod -a after installing it by hand; " HOWTO,
			release);
}

/* ---- load ---- */

/* "NAME=VALUE" joined as the kernel takes them, each of a parameter that the module has. */
static int join_params(const struct ctl *c, const struct drv_module *m, int argc, char **argv,
		       char *buf, size_t len)
{
	size_t used = 0;

	buf[0] = '\0';
	for (int i = 0; i < argc; i++) {
		size_t name = strcspn(argv[i], "=");

		if (m && !drv_module_has_param(m, argv[i], name))
			return ctl_usage(c, "the module has no parameter \"%.*s\"; see modinfo "
					    DRV_NAME, (int)name, argv[i]);
		used += (size_t)snprintf(buf + used, len - used, "%s%s", i ? " " : "", argv[i]);
		if (used >= len)
			return ctl_usage(c, "the parameters have more than %zu bytes", len - 1);
	}
	return EX_DONE;
}

/* What is wrong with the words alone, whatever the machine has. */
static int check_params(const struct ctl *c, int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		size_t name = strcspn(argv[i], "=");

		if (!name || argv[i][name] != '=' || argv[i][strcspn(argv[i], " \t\n\"")])
			return ctl_usage(c, "\"%s\" is no PARAM=VALUE", argv[i]);
	}
	return EX_DONE;
}

static int do_load(const struct ctl *c, const struct drv_module *m, bool by_path, int argc,
		   char **argv)
{
	char params[1024];
	int ret = join_params(c, m, argc, argv, params, sizeof(params));

	if (ret)
		return ret;
	/* A file is loaded as it is; a name with what modprobe.d and dependencies ask for. */
	if (by_path)
		ret = kmod_module_insert_module(m->mod, 0, params);
	else
		ret = kmod_module_probe_insert_module(m->mod, 0, params, NULL, NULL, NULL);
	if (ret > 0)
		return ctl_fail(c, "an install command of modprobe.d stands in its place, and failed");
	return ret ? explain_load(c, m, -ret) : EX_DONE;
}

static void report_load(const struct ctl *c, const struct drv_module *m, bool already)
{
	struct json_object *doc = json_object_new_object(), *live = drv_module_live(m), *v = NULL;

	json_object_object_add(doc, "module", json_object_new_string(DRV_NAME));
	json_object_object_add(doc, "state", json_object_new_string(drv_module_state(m)));
	json_object_object_add(doc, "already", json_object_new_boolean(already));
	json_object_object_add(doc, "file", m->path ? json_object_new_string(m->path) : NULL);
	json_object_object_add(doc, "loaded", live);
	if (c->json) {
		view_json(doc);
	} else if (!c->quiet) {
		json_object_object_get_ex(live, "version", &v);
		printf(DRV_NAME " %s %s%s%s\n", v ? json_object_get_string(v) : "",
		       already ? "is loaded already" : "loaded", m->path && !already ? " from " : "",
		       m->path && !already ? m->path : "");
		json_object_object_get_ex(live, "taint", &v);
		if (!already && v && strchr(json_object_get_string(v), 'E'))
			printf("note: it is not signed; the kernel is tainted (E)\n");
	}
	json_object_put(doc);
}

int module_load(struct ctl *c, const char *file, int argc, char **argv)
{
	struct drv_module m;
	bool live;
	int ret = check_params(c, argc, argv);

	if (!ret)
		ret = drv_module_get(c, &m, file);
	if (ret)
		return ret;
	live = kmod_module_get_initstate(m.mod) >= 0;
	if (live && argc)
		ret = ctl_fail(c, "it is loaded already, and takes parameters only then: gkvctl module "
				  "unload first");
	else if (live && file)
		ret = ctl_fail(c, "it is loaded already, maybe from another file: gkvctl module "
				  "unload first");
	else if (!live && !m.path)
		ret = not_installed(c);
	else if (!live)
		ret = do_load(c, &m, file, argc, argv);
	if (!ret)
		report_load(c, &m, live);
	drv_module_put(&m);
	return ret;
}

/* ---- unload ---- */

/* "kvbridged (pid 12), python3 (pid 34)" */
static void users_text(struct json_object *users, char *buf, size_t len)
{
	size_t n = json_object_array_length(users), used = 0;

	for (size_t i = 0; i < n && used < len; i++) {
		struct json_object *o = json_object_array_get_idx(users, i), *pid = NULL, *name = NULL;

		json_object_object_get_ex(o, "pid", &pid);
		json_object_object_get_ex(o, "name", &name);
		used += (size_t)snprintf(buf + used, len - used, "%s%s (pid %d)", i ? ", " : "",
					 json_object_get_string(name), json_object_get_int(pid));
		/* One line, whoever it is. */
		if (i == 7 && n > 8) {
			snprintf(buf + used, len - used, " and %zu more", n - 8);
			break;
		}
	}
}

static int explain_busy(const struct ctl *c, const struct drv_module *m)
{
	struct json_object *users;
	int refs = kmod_module_get_refcnt(m->mod);
	unsigned int hidden;
	char text[512];

	users = drv_users(&hidden);
	if (json_object_array_length(users)) {
		users_text(users, text, sizeof(text));
		ctl_fail(c, "it is in use (%d reference%s): stop, or have closed their memory of "
			    GKVDRV_PATH ", %s", refs, refs == 1 ? "" : "s", text);
	} else if (hidden) {
		ctl_fail(c, "it is in use (%d reference%s), by none of the processes that may be seen; "
			    "%u may not", refs, refs == 1 ? "" : "s", hidden);
	} else {
		ctl_fail(c, "it is in use (%d reference%s), by no process: a descriptor waits in a "
			    "socket or ring, or another module uses it (lsmod)", refs,
			 refs == 1 ? "" : "s");
	}
	json_object_put(users);
	return EX_FAILED;
}

int module_unload(struct ctl *c)
{
	struct drv_module m;
	struct json_object *doc;
	int ret = drv_module_get(c, &m, NULL), state;

	if (ret)
		return ret;
	state = kmod_module_get_initstate(m.mod);
	if (state < 0) {
		ret = ctl_fail(c, DRV_NAME " is not loaded");
		goto out;
	}
	ret = kmod_module_remove_module(m.mod, KMOD_REMOVE_NOLOG);
	switch (-ret) {
	case 0:
		break;
	case EPERM:
		ret = explain_eperm(c, "unloading");
		goto out;
	case EAGAIN:
		ret = explain_busy(c, &m);
		goto out;
	case EBUSY:
		ret = ctl_fail(c, "it is just being loaded or unloaded: try again, or see dmesg");
		goto out;
	default:
		ret = ctl_fail(c, "unloading: %s", strerror(-ret));
		goto out;
	}
	doc = json_object_new_object();
	json_object_object_add(doc, "module", json_object_new_string(DRV_NAME));
	json_object_object_add(doc, "state", json_object_new_string(drv_module_state(&m)));
	if (c->json)
		view_json(doc);
	else if (!c->quiet)
		printf(DRV_NAME " unloaded\n");
	json_object_put(doc);
out:
	drv_module_put(&m);
	return ret;
}
