/* SPDX-License-Identifier: MIT */
/* What gkv-gpusim is asked to do. */
#ifndef GKV_GPUSIM_OPTIONS_H
#define GKV_GPUSIM_OPTIONS_H

#include "bus.h"
#include "killer.h"
#include "work.h"

enum { EX_DONE, EX_FAILED, EX_BADUSE };

struct options {
	const char *socket, *ns;
	uint32_t depth;
	uint32_t mode;			/* GKV_MODE_* */
	int dmabuf;			/* memory of VRAM is this dma-buf; -1: it is allocated */
	bool csum;
	bool offer;
	uint64_t attach;		/* to what is described there; 0: to nothing */
	struct bus_file files[BUS_FILES_MAX];
	uint32_t nfiles;
	struct killer killer;
	struct work work;
};

/* Ends the process with a message for what makes no sense, for --help and for --version. */
void options_parse(struct options *o, int argc, char **argv);

void die(int code, const char *fmt, ...) __attribute__((noreturn, format(printf, 2, 3)));

#endif
