/* SPDX-License-Identifier: MIT */
/*
 * Places of the source that access memory. The same header in two files of a program has two
 * names of equal text; both are one site.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_priv.h"

#define NALIASES 4096u		/* a power of two; far more than there are places */

struct alias {
	const char *file;	/* by address */
	int line;
	enum sim_site_kind kind;
	unsigned int order;
	struct sim_site *site;
};

static struct alias *aliases[NALIASES];
static struct sim_site *all, **all_end = &all;		/* that can be weakened */
static struct sim_site *others;				/* that cannot */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t hash(const char *file, int line, enum sim_site_kind kind, unsigned int order)
{
	uint64_t h = (uintptr_t)file;

	h ^= (uint64_t)(unsigned int)line << 20 ^ (uint64_t)kind << 40 ^ (uint64_t)order << 48;
	h *= 0x9e3779b97f4a7c15u;
	return (uint32_t)(h >> 40);
}

static struct sim_site *search(struct sim_site *site, const char *file, int line,
			       enum sim_site_kind kind, unsigned int order)
{
	while (site && (site->line != line || site->kind != kind || site->order != order ||
			strcmp(site->file, file)))
		site = site->next;
	return site;
}

/* With the lock held. */
static struct sim_site *intern(const char *file, int line, enum sim_site_kind kind,
			       unsigned int order)
{
	bool orders = order & ~(unsigned int)GKV_SIM_SYS;
	struct sim_site *site = search(orders ? all : others, file, line, kind, order);

	if (site)
		return site;
	site = calloc(1, sizeof(*site));
	if (!site)
		abort();
	site->file = file;
	site->line = line;
	site->kind = kind;
	site->order = order;
	if (orders) {
		*all_end = site;
		all_end = &site->next;
	} else {
		site->next = others;
		others = site;
	}
	return site;
}

struct sim_site *site_get(const char *file, int line, enum sim_site_kind kind, unsigned int order)
{
	uint32_t i = hash(file, line, kind, order);
	struct alias *a;

	for (;; i++) {
		a = __atomic_load_n(&aliases[i % NALIASES], __ATOMIC_ACQUIRE);
		if (!a)
			break;
		if (a->file == file && a->line == line && a->kind == kind && a->order == order)
			return a->site;
	}
	a = calloc(1, sizeof(*a));
	if (!a)
		abort();
	pthread_mutex_lock(&lock);
	*a = (struct alias){ file, line, kind, order, intern(file, line, kind, order) };
	/* Another thread may have added the same: then there are two, of which one is found. */
	while (__atomic_load_n(&aliases[i % NALIASES], __ATOMIC_RELAXED))
		i++;
	__atomic_store_n(&aliases[i % NALIASES], a, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
	return a->site;
}

struct sim_site *sim_sites(void)
{
	return all;
}

struct sim_site *sim_relaxed_sites(void)
{
	return others;
}

void sim_weaken(struct sim_site *site)
{
	site->weakened = true;
}

void sim_split(struct sim_site *site)
{
	site->split = true;
}

void sim_late(struct sim_site *site, uint32_t n)
{
	site->late = n;
}

static void restore(struct sim_site *site)
{
	for (; site; site = site->next) {
		site->weakened = site->split = false;
		site->late = 0;
	}
}

void sim_restore_all(void)
{
	restore(all);
	restore(others);
}

const char *order_name(unsigned int order)
{
	static const char *const names[] = { "relaxed", "acquire", "release", "acq_rel" };

	return order & GKV_SIM_SC ? "sc" : names[order & 3];
}

const char *sim_site_name(const struct sim_site *site)
{
	static const char *const kinds[] = { "load", "store", "rmw", "fence", "collective", "wait" };
	static _Thread_local char text[2][256];
	static _Thread_local unsigned int turn;
	const char *base;

	if (!site)
		return "its start";
	turn ^= 1;
	base = strrchr(site->file, '/');
	snprintf(text[turn], sizeof(text[turn]), "%s:%d %s %s%s", base ? base + 1 : site->file,
		 site->line, kinds[site->kind],
		 site->kind >= SIM_COLLECTIVE ? "" : order_name(site->order),
		 site->order & GKV_SIM_SYS ? " sys" : "");
	return text[turn];
}
