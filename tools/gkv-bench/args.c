/* SPDX-License-Identifier: MIT */
#include "args.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <gkv.h>

#include "bench.h"
#include "util.h"

uint64_t count_arg(const char *cmd, const char *name, const char *arg, uint64_t min, uint64_t max)
{
	uint64_t v;

	if (parse_count(arg, &v) || v < min || v > max)
		die("%s: --%s %s: must be %" PRIu64 " to %" PRIu64, cmd, name, arg, min, max);
	return v;
}

uint64_t duration_arg(const char *cmd, const char *name, const char *arg, uint64_t min_ns)
{
	char text[32];
	uint64_t ns;

	if (parse_duration(arg, &ns) || !ns)
		die("%s: --%s %s: not a duration", cmd, name, arg);
	if (ns < min_ns)
		die("%s: --%s %s: must be %s or more", cmd, name, arg,
		    human_ns(text, sizeof(text), (double)min_ns));
	return ns;
}

bool switch_arg(const char *cmd, const char *name, const char *arg)
{
	if (!strcmp(arg, "yes") || !strcmp(arg, "on"))
		return true;
	if (strcmp(arg, "no") && strcmp(arg, "off"))
		die("%s: --%s %s: must be on or off", cmd, name, arg);
	return false;
}

size_t sizes_arg(const char *cmd, const char *name, const char *arg, uint64_t *out, size_t max)
{
	char *copy = strdup(arg), *save = NULL;
	size_t n = 0;

	if (!copy)
		die("out of memory");
	for (char *t = strtok_r(copy, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
		if (n == max || parse_size(t, &out[n]) || !out[n])
			die("%s: --%s %s: not a list of at most %zu sizes", cmd, name, arg, max);
		n++;
	}
	if (!n)
		die("%s: --%s: the list is empty", cmd, name);
	free(copy);
	return n;
}

void client_opts_init(struct client_opts *c)
{
	*c = (struct client_opts){ .seed = 1, .verify = true };
}

bool client_opt(struct client_opts *c, const char *cmd, int opt, const char *arg)
{
	switch (opt) {
	case ARG_SOCKET:
		c->socket = arg;
		return true;
	case ARG_NS:
		c->ns = arg;
		return true;
	case ARG_PLOT:
		c->plot = arg;
		return true;
	case ARG_TIMEOUT:
		c->timeout_ns = duration_arg(cmd, "timeout", arg, 1);
		return true;
	case ARG_SEED:
		c->seed = count_arg(cmd, "seed", arg, 0, INT64_MAX);
		return true;
	case ARG_VERIFY:
		c->verify = switch_arg(cmd, "verify", arg);
		return true;
	case ARG_PRP:
		c->qp_flags |= GKV_QP_PRP;
		return true;
	case ARG_CSUM:
		c->qp_flags |= GKV_QP_CSUM;
		return true;
	case ARG_POLLED:
		c->qp_flags |= GKV_QP_POLLED;
		return true;
	case ARG_MODE:
		c->mode = (uint32_t)count_arg(cmd, "mode", arg, 0, 15);
		return true;
	case ARG_CPUS:
		c->n_cpus = parse_cpus(arg, c->cpus, MAX_THREADS);
		if (c->n_cpus <= 0)
			die("%s: --cpus %s: not a list of at most %d processors", cmd, arg,
			    MAX_THREADS);
		return true;
	case 'o':
		c->json = output_is_json(arg);
		return true;
	case 'q':
		c->quiet = true;
		return true;
	default:
		return false;
	}
}
