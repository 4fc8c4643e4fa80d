/* SPDX-License-Identifier: MIT */
/*
 * A GPU stand-in: wavefronts of lanes that run code written against gkv_device.h (compiled
 * with GKV_DEV_SIM), beside agents that stand for the processor's side of a queue. Two ways:
 *
 * threads:  each lane is a thread. Memory is the machine's.
 * lockstep: lanes are coroutines of one thread under a seeded scheduler that does what SIMT
 *	     hardware may do; the same seed does the same. Time is virtual. Memory may be weak:
 *	     what another lane stored is seen late and out of order, as far as C11 allows.
 *
 * One simulation at a time in a process.
 */
#ifndef GKV_GPUSIM_SIM_H
#define GKV_GPUSIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gkv_device/port.h>

#define SIM_LANES_MAX 64u	/* of one wavefront */

/* Of the lanes that wait at a place where the hardware may choose, which run next (lockstep). */
enum sim_policy {
	SIM_RANDOM,	/* any, alone or together */
	SIM_WORST,	/* one that spins, for ever; else any */
	SIM_ITS,	/* independent scheduling: any lane, at each access, fairly */
	SIM_FIRST,	/* the lowest one alone, spinning or not */
	SIM_TOGETHER,	/* all at one place in step; those that spin last */
	SIM_STARVE,	/* one, for ever; others when it waits for them in a collective */
	SIM_NPOLICIES
};

extern const char *const sim_policy_names[SIM_NPOLICIES];

/*
 * Chosen runs (lockstep, memory that is not weak): what a seed decides elsewhere is asked of
 * the caller, who can thus go through all that may happen; explore.h does. Lanes are
 * scheduled independently, at each access. One that spins does not run before others have
 * changed memory or the clock, unless all wait in such a way; then each has a turn, unasked.
 */
enum sim_choice_kind {
	SIM_WHO,	/* of the lanes that can, 0 the one that ran last if it can go on */
	SIM_WITH,	/* a lane goes on alone (0) or with those that came to where it is (1) */
	SIM_VALUE,	/* what sim_random() returns */
};

struct sim_choice {
	enum sim_choice_kind kind;
	uint32_t n;		/* two or more */
	uint32_t free;		/* SIM_WHO: others than the first so many interrupt a lane */
};

#define SIM_ENOUGH (~(uint32_t)0)

/* Returns a number below c->n, or SIM_ENOUGH to end the run, which has not failed then. */
typedef uint32_t sim_chooser(void *ctx, const struct sim_choice *c);

/* When asked SIM_WHO: a hash of all there is. From equal ones on, equal choices do the same. */
uint64_t sim_state(void);

/* Zero means the default for all but the first three. */
struct sim_conf {
	uint32_t waves;
	uint32_t lanes;		/* of each wavefront, 1 to SIM_LANES_MAX */
	bool lockstep;
	enum sim_policy policy;
	uint64_t seed;
	bool weak;		/* lockstep: memory is weak */
	uint32_t stale_steps;	/* weak: an old value can be seen for so long (2000) */
	bool stubborn;		/* weak: it is seen until the lane spins (for one seed in four) */
	uint64_t watchdog;	/* steps without progress that make a livelock (2,000,000) */
	uint64_t max_steps;	/* of the whole run (1 << 40) */
	uint64_t tick;		/* clock ticks of a step (1) */
	uint32_t agent_share;	/* lockstep: one step of so many is an agent's (2 to 64) */
	bool real_time;		/* lockstep: beside another process; its clock, not the steps' */
	bool jitter;		/* threads: give way at random accesses */
	sim_chooser *choose;	/* chosen runs */
	void *choose_ctx;
	const void *kept;	/* chosen runs: see sim_forget() */
	size_t kept_len;
	bool trace;		/* chosen runs: tell each step on stdout */
};

struct sim;

/* A kernel: @id counts all lanes, wavefront by wavefront. */
typedef void sim_kernel(void *arg, uint32_t id);

/* NULL when out of memory or @conf makes no sense. */
struct sim *sim_new(const struct sim_conf *conf);
void sim_free(struct sim *s);

/*
 * Something beside the lanes that runs @fn(@arg, 0): a thread, or a coroutine that is not
 * scheduled as a lane is. It must return soon after sim_stopping(). @name is not copied.
 */
int sim_agent(struct sim *s, sim_kernel *fn, void *arg, const char *name);

/*
 * Run all lanes and agents to their end. Returns 0, or -1 when the run failed: a deadlock, a
 * livelock, or something told by sim_fail(); sim_report() says what. Once for each sim.
 */
int sim_run(struct sim *s, sim_kernel *fn, void *arg);

/* Make a chosen run's sim, with its agents, as it was before sim_run(). */
void sim_again(struct sim *s);
/* Whether sim_run() ended with SIM_ENOUGH. */
bool sim_cut(const struct sim *s);

/* What failed first and where each lane was; "" when nothing did. Valid until sim_free(). */
const char *sim_report(const struct sim *s);
uint64_t sim_steps(const struct sim *s);

/*
 * From kernels and agents.
 */

/* The run failed. A lockstep run ends at the next step, a threads run when all lanes end. */
void sim_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool sim_failed(void);
/* All lanes have ended, or the run failed. */
bool sim_stopping(void);
/*
 * Something happened: no livelock. Lanes that start or end, and what agents store, is noticed
 * without; what lanes store is not: they also take locks and give them back in vain.
 */
void sim_progress(void);
/* Random numbers of the run, below @n. */
uint64_t sim_random(uint64_t n);
/* One step that does nothing. */
void sim_step(void);
/* Chosen runs: from now on, or no more, the caller's accesses are no steps of their own. */
void sim_at_once(bool on);
/*
 * Chosen runs: of all that the caller has been told so far (what it has read, and so on) only @v
 * makes a difference from now on; so that states are found to be equal that are.
 *
 * Without being told, a lane is taken to forget what it was told between two gkvd_spin() if it
 * has changed nothing meanwhile, except the clock and what it read at @kept of the sim's
 * configuration. (It has counted its turns, but that makes no difference.)
 */
void sim_forget(uint64_t v);
/* Chosen runs: the lanes' clock, which is 0 at first and stands still otherwise. */
void sim_set_clock(uint64_t ticks);
/* Steps so far; where lanes are threads, so many times 100 ns. */
uint64_t sim_now_step(void);

/*
 * Sites: places of the source that access memory. They are those of the process, over all
 * runs.
 */
enum sim_site_kind { SIM_LOAD, SIM_STORE, SIM_RMW, SIM_FENCE, SIM_COLLECTIVE, SIM_WAIT };

struct sim_site {
	const char *file;
	int line;
	enum sim_site_kind kind;
	unsigned int order;	/* GKV_SIM_* */
	bool weakened;
	bool split;
	uint32_t late;
	uint64_t seen;		/* times, in lockstep */
	struct sim_site *next;	/* in order of appearance */
};

/* All with an order that can be weakened, linked by @next. Not while lanes run. */
struct sim_site *sim_sites(void);
/* All others. */
struct sim_site *sim_relaxed_sites(void);
/* From now on its accesses are relaxed; a fence or gkvd_sync() does nothing. */
void sim_weaken(struct sim_site *site);
/* Chosen runs: its read-modify-write is a load and, in a step of its own, a store. */
void sim_split(struct sim_site *site);
/*
 * Chosen runs: what it stores is stored after @n more accesses of the lane, or when the lane
 * spins, comes to gkvd_active() or ends. What a read-modify-write returns it has read before.
 */
void sim_late(struct sim_site *site, uint32_t n);
void sim_restore_all(void);
/* "file:line load acquire sys"; valid until the next call. */
const char *sim_site_name(const struct sim_site *site);

/*
 * Weak memory: what is here belongs to one lane or agent at a time. A store must come, by what
 * accesses order, after each earlier store and each earlier relaxed load of others; when it
 * does not the run fails. This finds what values cannot show here: a load that hardware may do
 * after a later store. Acquire loads, which poll, are exempt. Before sim_run().
 */
int sim_watch(struct sim *s, const void *p, size_t len, const char *name);

#endif
