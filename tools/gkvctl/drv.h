/* SPDX-License-Identifier: MIT */
/*
 * The kernel module as gkvctl sees it: /dev/gkv, its files in sysfs, and libkmod.
 *
 * Functions that return an exit code have printed what went wrong; the others return
 * 0 or a negative errno and print nothing.
 */
#ifndef GKVCTL_DRV_H
#define GKVCTL_DRV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gkv/gkvdrv.h>

#include "gkvctl.h"

#define DRV_NAME	"gkvdrv"
#define DRV_SYSFS	"/sys/class/misc/gkv"
#define DRV_BDF		16	/* bytes for "0000:03:00.0", domains of 32 bits included */

/* ---- Device and sysfs (drv.c) ---- */

/* Open /dev/gkv. The caller closes *@fd. */
int drv_open(const struct ctl *c, int *fd);

/* Is it in the kernel, whether or not it is usable? */
bool drv_loaded(void);

/* The exit code for a command that takes the module, which is not loaded; prints. */
int drv_missing(const struct ctl *c);

/*
 * One ioctl. @arg begins with its head, whose size the caller has set; @text gets the
 * module's reason, or the errno's.
 */
int drv_ioctl(int fd, unsigned long cmd, void *arg, char text[GKVDRV_TEXT]);

/* A word for GKVDRV_WHY_*, as scripts want it. */
const char *drv_why(uint32_t reason);

const char *drv_bdf(uint32_t domain, uint32_t bdf, char buf[DRV_BDF]);

/* "[DOMAIN:]BUS:DEVICE.FUNCTION", in hex as lspci prints it. */
int drv_parse_bdf(const char *text, uint32_t *domain, uint32_t *bdf);

/* The first line of a file, without its end. */
int drv_read(const char *path, char *buf, size_t len);

/* The same of the file @name below DRV_SYSFS, as a number. */
int drv_attr(const char *name, uint64_t *v);

/* CAP_*: is it in force? */
bool drv_capable(int cap);

/* ---- Module (kmod.c) ---- */

struct kmod_ctx;
struct kmod_module;

struct drv_module {
	struct kmod_ctx *ctx;
	struct kmod_module *mod;
	const char *path;	/* NULL: not installed for the running kernel */
};

/* Find the module by its name, or the one in @file. Free with drv_module_put(). */
int drv_module_get(const struct ctl *c, struct drv_module *m, const char *file);
void drv_module_put(struct drv_module *m);

/* How the kernel calls its state; "not loaded" if it is not. */
const char *drv_module_state(const struct drv_module *m);

/* What its file says, and what the kernel says of it: members for a report. */
struct json_object *drv_module_file(const struct drv_module *m);
struct json_object *drv_module_live(const struct drv_module *m);

/* A field of modinfo; "" if there is none. Valid until the next call. */
const char *drv_module_info(const struct drv_module *m, const char *key);

/* Does the module have the parameter @name, @len bytes long? */
bool drv_module_has_param(const struct drv_module *m, const char *name, size_t len);

/* ---- Users (users.c) ---- */

enum drv_fd_kind { DRV_FD_NONE, DRV_FD_DEVICE, DRV_FD_REGION, DRV_FD_QP };

/* What a descriptor's or mapping's name in /proc says that it is. */
enum drv_fd_kind drv_fd_kind(const char *name);

/*
 * The processes that have descriptors or mappings of the module, as an array of objects.
 * *@hidden: how many could not be looked into.
 */
struct json_object *drv_users(unsigned int *hidden);

/* How many mappings of it @pid has; a negative errno if that may not be seen. */
int drv_mappings(int pid);

/* The name of a process, or "?". */
void drv_comm(int pid, char buf[32]);

/* ---- Subcommands ---- */

int module_load(struct ctl *c, const char *file, int argc, char **argv);
int module_unload(struct ctl *c);
int module_set(struct ctl *c, const char *name, const char *value);

/* Regions of a process, or a page of each carve-out (@pid 0); @disk: NULL or to be probed. */
int region_of_pid(struct ctl *c, int pid, const char *disk);
int region_of_carveouts(struct ctl *c, const char *disk);

#endif
