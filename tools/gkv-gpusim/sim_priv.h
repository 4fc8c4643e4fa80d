/* SPDX-License-Identifier: MIT */
/* What the parts of the simulator share. */
#ifndef GKV_GPUSIM_SIM_PRIV_H
#define GKV_GPUSIM_SIM_PRIV_H

#include <pthread.h>

#include "coro.h"
#include "sim.h"

enum lane_state {
	LANE_NEW,	/* not started */
	LANE_READY,	/* of the group that runs */
	LANE_ACTIVE,	/* came to gkvd_active(); waits to be one of a group */
	LANE_SPIN,	/* came to gkvd_spin() */
	LANE_MEET,	/* waits in a collective for the rest of its mask */
	LANE_DONE,
	LANE_NSTATES
};

enum meet_kind { MEET_SYNC, MEET_BALLOT, MEET_SHFL };

/* What a lane brings to a collective and what it gets. */
struct meet {
	enum meet_kind kind;
	uint64_t mask;
	uint64_t value;		/* predicate or value */
	uint32_t src;
	uint64_t result;
};

/* A store that has been put off; @at: NULL for none. */
struct late {
	struct sim_site *at;
	void *p;
	unsigned int size;
	uint64_t v;
	bool rmw;
	enum gkv_sim_rmw op;
	uint32_t left;		/* accesses before it is done */
};

struct wave;

struct lane {
	struct wave *wave;
	uint32_t id;		/* of all lanes, then of agents */
	uint32_t idx;		/* in its wavefront */
	enum lane_state state;
	struct sim_site *at;	/* where it waits, or its last access */
	uint64_t group;		/* what gkvd_active() returned last */
	struct meet meet;
	struct coro coro;
	struct view *view;	/* what it has seen of weak memory */
	uint64_t turn;		/* step of its last gkvd_spin() */

	/* Chosen runs only. */
	uint64_t past;		/* hash of all it has been told: where it is follows from that */
	uint64_t own;		/* what it has changed itself, as sim.content has it */
	uint64_t base;		/* what others had changed when its turn began */
	bool turned;		/* it began with gkvd_spin(); the rest is as it was then: */
	uint64_t turn_past, turn_own;
	uint64_t kept, last_kept;	/* hash of what was told in a turn and is not forgotten */
	bool at_once;
	struct late late;

	/* Threads only. */
	pthread_t thread;
	bool created;
	bool met;
	uint64_t rnd;
};

/* A wavefront, or an agent: then it is one lane that is free to run. */
struct wave {
	uint32_t n;
	bool agent;
	const char *name;
	sim_kernel *fn;
	void *arg;
	struct lane *lanes;
	uint64_t in[LANE_NSTATES];	/* lanes in each state */

	/* How the group runs (lockstep). */
	bool serial;		/* one lane first, up to where it must wait */
	uint32_t last;		/* lane that ran last */
	uint64_t sticky;	/* lanes that spin for ever */
	bool spun;		/* SIM_STARVE: lane @last has, since it became the one */

	/* Threads only. */
	pthread_mutex_t lock;
	pthread_cond_t cond;
};

struct sim {
	struct sim_conf conf;
	sim_kernel *fn;
	void *arg;
	struct wave **waves;	/* wavefronts, then agents */
	uint32_t nwaves, nagents;
	struct lane *lanes;
	uint32_t nlanes;
	uint64_t rnd;
	uint64_t left;		/* lanes that have not ended */
	uint64_t step;
	uint64_t progress;	/* step of the last */
	uint64_t spins;		/* gkvd_spin() so far */
	uint64_t waiting, waited; /* real time: since when, and the progress before that */
	struct mem *mem;	/* weak memory, or NULL */
	bool alone;		/* of lanes that spin for ever, only one at a time */
	bool ending;		/* coroutines end where they are */
	struct stacks stacks;
	bool failed;
	pthread_mutex_t report_lock;

	/* Chosen runs only. */
	uint64_t content;	/* of memory and the clock: changes since the start, hashed */
	uint64_t clock;
	const struct lane *ran;	/* last */
	bool idle;		/* nobody is asked: all wait */
	uint64_t idled, idle_content;
	bool cut;		/* SIM_ENOUGH */
	char report[4096];
};

extern struct sim *sim_now;			/* the one that runs */
extern _Thread_local struct lane *sim_self;	/* NULL outside lanes and agents */

uint64_t sim_mix(uint64_t x);			/* splitmix64's */
uint64_t sim_rnd(uint64_t *state);		/* splitmix64 */
static inline uint64_t sim_below(uint64_t *state, uint64_t n)
{
	return n ? sim_rnd(state) % n : 0;
}

/* site.c */
struct sim_site *site_get(const char *file, int line, enum sim_site_kind kind,
			  unsigned int order);
const char *order_name(unsigned int order);

/* meet.c: whether all lanes of @l's mask are where it is. */
bool meet_all(const struct lane *l);
/* They are: fill in their results. */
void meet_complete(struct wave *w, uint64_t mask);
/* NULL, or what is wrong with @lane's being in a collective of its mask. */
const char *meet_wrong(const struct lane *lane);

/* sched.c */
int lockstep_run(struct sim *s);
void lockstep_yield(struct sim_site *at);	/* another lane may run now */
uint64_t lockstep_active(struct sim_site *at);
void lockstep_spin(struct sim_site *at);
void lockstep_meet(struct lane *l);
/* Append where each lane is to the report. */
void report_lanes(struct sim *s);

/* policy.c: the lane of @w that takes the next step, or -1: all wait for one another. */
int policy_lane(struct sim *s, struct wave *w);
void lane_to(struct lane *l, enum lane_state state);

/* choose.c: chosen runs. The lane that takes the next step, or NULL: there is none. */
struct lane *choose_lane(struct sim *s);
uint32_t choose_value(struct sim *s, uint32_t n);
/* @l was told @v; by what is not forgotten, or else by a load from @p. */
void choose_told(struct lane *l, uint64_t v);
void choose_told_kept(struct lane *l, uint64_t v);
void choose_loaded(struct lane *l, const void *p, uint64_t v);
/* @l has come to gkvd_spin(). */
void choose_spun(struct lane *l);
/* @l has changed what is at @p, @size bytes, or the clock. */
void choose_changed(struct lane *l, const void *p, uint64_t was, uint64_t is);

/* access.c: do what sim_late() has put off. */
void access_late(struct lane *l);

/* threads.c */
int threads_run(struct sim *s);
void threads_meet(struct lane *l);
void threads_access(struct lane *l);
void threads_spin(uint32_t i);

/* weak.c: accesses to weak memory by @l. Widths are 4 or 8. */
struct mem *mem_new(struct sim *s);
void mem_free(struct mem *m);
int mem_view_new(struct lane *l);
void mem_view_free(struct lane *l);
int mem_watch(struct mem *m, const void *p, size_t len, const char *name);
uint64_t mem_load(struct mem *m, struct lane *l, const void *p, unsigned int size,
		  unsigned int order);
void mem_store(struct mem *m, struct lane *l, void *p, unsigned int size, uint64_t v,
	       unsigned int order);
/* The load and, unless it stores nothing, the store of one that no other access comes between. */
uint64_t mem_rmw_begin(struct mem *m, struct lane *l, void *p, unsigned int size,
		       unsigned int order);
void mem_rmw_end(struct mem *m, struct lane *l, void *p, unsigned int size, uint64_t v,
		 unsigned int order);
void mem_fence(struct mem *m, struct lane *l);
/* The lanes of @mask have seen what any of them had. */
void mem_join(struct wave *w, uint64_t mask);

#endif
