/* SPDX-License-Identifier: MIT */
/*
 * module: the state of gkvdrv, its settings, loading and unloading it.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "drv.h"

/* Ranges as docs/ABI/sysfs-class-misc-gkv has them; the module is who checks. */
static const struct setting {
	const char *name;
	uint64_t min, max;
} settings[] = {
	{ "poll_interval_ns", 1000, 1000000000 },
	{ "max_queue_depth", 2, 65536 },
	{ "max_user_objects", 1, 1u << 20 },
	{ "max_user_bytes", 0, UINT64_MAX },
};

#define NSETTINGS (sizeof(settings) / sizeof(settings[0]))

static const char *const counters[] = {
	"regions", "imports", "qps", "revoked", "refused", "faults", "sigbus",
};

static void add_string(struct json_object *o, const char *name, const char *v)
{
	json_object_object_add(o, name, v ? json_object_new_string(v) : NULL);
}

static void note(struct json_object *notes, const char *text)
{
	json_object_array_add(notes, json_object_new_string(text));
}

/* ---- status ---- */

struct status {
	struct json_object *doc, *notes;
	char error[512];	/* why it is not usable; "" if it is */
};

static void add_device(struct status *s)
{
	struct json_object *o = json_object_new_object();
	struct passwd *pw;
	struct group *gr;
	struct stat st;
	char text[32];

	json_object_object_add(s->doc, "device", o);
	add_string(o, "path", GKVDRV_PATH);
	if (stat(GKVDRV_PATH, &st)) {
		snprintf(s->error, sizeof(s->error), "there is no " GKVDRV_PATH
			 ": is udev running, or is this a container?");
		return;
	}
	pw = getpwuid(st.st_uid);
	gr = getgrgid(st.st_gid);
	snprintf(text, sizeof(text), "%u", st.st_uid);
	add_string(o, "owner", pw ? pw->pw_name : text);
	snprintf(text, sizeof(text), "%u", st.st_gid);
	add_string(o, "group", gr ? gr->gr_name : text);
	snprintf(text, sizeof(text), "%04o", st.st_mode & 07777);
	add_string(o, "mode", text);
	if (st.st_mode & 0007)
		note(s->notes, "everybody may open " GKVDRV_PATH ": packaging/60-gkv.rules gives it to "
			       "a group");
	else if (!st.st_gid)
		note(s->notes, "only root may open " GKVDRV_PATH ": packaging/60-gkv.rules gives it to "
			       "a group");
}

/* The handshake; what anybody may see comes from sysfs, whether or not it succeeds. */
static void add_interface(struct status *s)
{
	struct gkvdrv_info info = { .head.size = sizeof(info), .abi = GKVDRV_ABI };
	struct json_object *o = json_object_new_object(), *caps = json_object_new_array();
	struct json_object *use = json_object_new_object();
	char text[GKVDRV_TEXT];
	uint64_t abi;
	int fd = open(GKVDRV_PATH, O_RDWR | O_CLOEXEC), ret = -errno;

	if (fd >= 0) {
		ret = drv_ioctl(fd, GKVDRV_INFO, &info, text);
		close(fd);
	} else {
		snprintf(text, sizeof(text), "%s", strerror(-ret));
	}
	json_object_object_add(s->doc, "interface", o);
	if (!drv_attr("abi_version", &abi))
		add_int(o, "module", abi);
	else if (!ret)
		add_int(o, "module", info.abi);
	add_int(o, "gkvctl", GKVDRV_ABI);
	if (ret) {
		json_object_put(caps);
		json_object_put(use);
		if (ret == -EPROTO)
			snprintf(s->error, sizeof(s->error), "the module has version %u of the "
				 "interface, gkvctl %s was built for %u: use both of one release",
				 info.abi, GKV_BUILD_VERSION, GKVDRV_ABI);
		else if (!s->error[0])
			snprintf(s->error, sizeof(s->error), GKVDRV_PATH ": %s%s", text,
				 ret == -EACCES ? ": are you in the group that owns it?" : "");
		return;
	}
	if (info.caps & GKVDRV_CAP_VRAM)
		note(caps, "vram");
	if (info.caps & GKVDRV_CAP_IMPORT)
		note(caps, "import");
	json_object_object_add(s->doc, "capabilities", caps);
	if (!(info.caps & GKVDRV_CAP_VRAM))
		note(s->notes, "this kernel has no CONFIG_PCI_P2PDMA: queue pairs in host memory only");
	else if (!info.nr_providers)
		note(s->notes, "there is no provider of GPU memory: see gkvctl provider --help");
	add_int(use, "providers", info.nr_providers);
	add_int(use, "user_objects", info.user_objects);
	add_int(use, "user_bytes", info.user_bytes);
	json_object_object_add(s->doc, "use", use);
}

static void add_attrs(struct status *s)
{
	struct json_object *o = json_object_new_object();
	char name[64];
	uint64_t v;

	for (size_t i = 0; i < NSETTINGS; i++) {
		if (!drv_attr(settings[i].name, &v))
			add_int(o, settings[i].name, v);
	}
	json_object_object_add(s->doc, "settings", o);
	o = json_object_new_object();
	for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
		snprintf(name, sizeof(name), "counters/%s", counters[i]);
		if (!drv_attr(name, &v))
			add_int(o, counters[i], v);
	}
	json_object_object_add(s->doc, "counters", o);
}

static const char *text_of(struct json_object *o, const char *name)
{
	struct json_object *v;

	return o && json_object_object_get_ex(o, name, &v) && v ? json_object_get_string(v) : "";
}

static void add_module(struct status *s, const struct drv_module *m)
{
	struct json_object *file = drv_module_file(m), *live = drv_module_live(m), *users;
	const char *state = drv_module_state(m);
	struct utsname u;
	unsigned int hidden;

	add_string(s->doc, "module", DRV_NAME);
	add_string(s->doc, "state", state);
	add_string(s->doc, "kernel", uname(&u) ? NULL : u.release);
	json_object_object_add(s->doc, "installed", file);
	json_object_object_add(s->doc, "loaded", live);
	if (!live) {
		snprintf(s->error, sizeof(s->error), file ? "it is not loaded: gkvctl module load" :
			 "it is not loaded, and not installed for this kernel: see docs/kernel.md");
		return;
	}
	if (strcmp(state, "live") && strcmp(state, "builtin"))
		snprintf(s->error, sizeof(s->error), "its state is \"%s\"", state);
	if (strchr(text_of(live, "taint"), 'E'))
		note(s->notes, "it is not signed: the kernel is tainted (E)");
	if (file && text_of(live, "srcversion")[0] &&
	    strcmp(text_of(live, "srcversion"), text_of(file, "srcversion")))
		note(s->notes, "another build is installed than the one that is loaded: it comes into "
			       "force when the module is loaded again");
	users = drv_users(&hidden);
	json_object_object_add(s->doc, "users", users);
	if (hidden)
		note(s->notes, "not every process may be looked into: users may be missing");
}

static void status_text(const struct status *s)
{
	struct json_object *notes;

	json_object_object_get_ex(s->doc, "notes", &notes);
	json_object_get(notes);
	json_object_object_del(s->doc, "notes");
	view_object(s->doc, "", false);
	for (size_t i = 0; i < json_object_array_length(notes); i++)
		printf("note: %s\n", json_object_get_string(json_object_array_get_idx(notes, i)));
	json_object_put(notes);
}

static int status_run(struct ctl *c)
{
	struct status s = { 0 };
	struct drv_module m;
	int ret = drv_module_get(c, &m, NULL);

	if (ret)
		return ret;
	s.doc = json_object_new_object();
	s.notes = json_object_new_array();
	add_module(&s, &m);
	drv_module_put(&m);
	if (drv_loaded()) {
		add_device(&s);
		add_interface(&s);
		add_attrs(&s);
	}
	json_object_object_add(s.doc, "notes", s.notes);
	if (c->json) {
		add_string(s.doc, "error", s.error[0] ? s.error : NULL);
		view_json(s.doc);
	} else if (!c->quiet) {
		status_text(&s);
	}
	json_object_put(s.doc);
	return s.error[0] ? ctl_fail(c, "%s", s.error) : EX_DONE;
}

/* ---- set ---- */

static int write_attr(const char *name, const char *value)
{
	char path[128];
	size_t len = strlen(value);
	ssize_t n;
	int fd, err;

	snprintf(path, sizeof(path), DRV_SYSFS "/%s", name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = write(fd, value, len);
	err = errno;
	close(fd);
	return n == (ssize_t)len ? 0 : n < 0 ? -err : -EIO;
}

int module_set(struct ctl *c, const char *name, const char *value)
{
	const struct setting *s = NULL;
	struct json_object *doc;
	char text[32];
	uint64_t v;
	int ret;

	for (size_t i = 0; i < NSETTINGS; i++) {
		if (!strcmp(settings[i].name, name))
			s = &settings[i];
	}
	if (!s)
		return ctl_usage(c, "the module has no setting \"%s\"; see gkvctl module --help", name);
	if (parse_u64(value, &v))
		return ctl_usage(c, "%s: \"%s\" is no number", name, value);
	if (!drv_loaded())
		return drv_missing(c);
	snprintf(text, sizeof(text), "%" PRIu64, v);
	ret = write_attr(name, text);
	switch (-ret) {
	case 0:
		break;
	case ERANGE:
		return ctl_fail(c, "%s: %" PRIu64 " is out of range, %" PRIu64 " to %" PRIu64, name, v,
				s->min, s->max);
	case EACCES:
	case EPERM:
		return ctl_fail(c, "%s: only root may change it", name);
	case EROFS:
		return ctl_fail(c, "%s: /sys is mounted read-only, as in a container", name);
	case ENOENT:
		return ctl_fail(c, "%s: this version of the module does not have it", name);
	default:
		return ctl_fail(c, "%s: %s", name, strerror(-ret));
	}
	/* What is in force, not what was asked for. */
	ret = drv_attr(name, &v);
	if (ret)
		return ctl_fail(c, "%s: %s", name, strerror(-ret));
	doc = json_object_new_object();
	add_string(doc, "name", name);
	add_int(doc, "value", v);
	add_int(doc, "min", s->min);
	add_int(doc, "max", s->max);
	if (c->json)
		view_json(doc);
	else if (!c->quiet)
		printf("%s = %" PRIu64 "\n", name, v);
	json_object_put(doc);
	return EX_DONE;
}

/* ---- Command ---- */

enum { OPT_FILE = OPT_CMD };

static const char *file;

static int module_option(struct ctl *c, int val, const char *arg)
{
	(void)c;
	(void)val;
	file = arg;
	return EX_DONE;
}

static int module_run(struct ctl *c, int argc, char **argv)
{
	const char *what = argc ? argv[0] : "status";

	if (file && strcmp(what, "load"))
		return ctl_usage(c, "--file is for load only");
	if (!strcmp(what, "load"))
		return module_load(c, file, argc - 1, argv + 1);
	if (!strcmp(what, "set")) {
		if (argc != 3)
			return ctl_usage(c, "usage: gkvctl module set NAME VALUE");
		return module_set(c, argv[1], argv[2]);
	}
	if (argc > 1)
		return ctl_usage(c, "argument \"%s\" is one too many; usage: gkvctl module %s", argv[1],
				 what);
	if (!strcmp(what, "unload"))
		return module_unload(c);
	if (!strcmp(what, "status"))
		return status_run(c);
	return ctl_usage(c, "\"%s\" is none of status, load, unload, set", what);
}

static const struct option module_opts[] = {
	{ "file", required_argument, NULL, OPT_FILE },
	{ NULL, 0, NULL, 0 },
};

const struct command cmd_module = {
	.name = "module",
	.args = "[status | load [PARAM=VALUE...] | unload | set NAME VALUE]",
	.summary = "Show, load, unload and set the kernel module gkvdrv",
	.help = "  status (default)        what is installed and loaded, and what is wrong with it;\n"
		"                          exit status 1 when it cannot be used\n"
		"  load [PARAM=VALUE...]   load it as modprobe does, with parameters (modinfo gkvdrv)\n"
		"  unload                  unload it; if it is in use, say by whom\n"
		"  set NAME VALUE          change a setting until it is unloaded; suffixes k, m, g:\n"
		"    poll_interval_ns        1000 to 1000000000\n"
		"    max_queue_depth         2 to 65536\n"
		"    max_user_objects        1 to 1048576\n"
		"    max_user_bytes          0 to 18446744073709551615 (no limit)\n"
		"Options:\n"
		"  --file FILE             load this file, without modprobe.d and dependencies\n",
	.opts = module_opts,
	.option = module_option,
	.max_args = -1,
	.run = module_run,
};
