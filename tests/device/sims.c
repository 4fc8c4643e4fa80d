/* SPDX-License-Identifier: MIT */
#include "sims.h"

#include <stdio.h>
#include <string.h>

struct sim *sims_new(struct sim_conf conf)
{
	struct sim *s = sim_new(&conf);

	assert_non_null(s);
	return s;
}

void sims_run(struct sim *s, const struct sim_conf *conf, sim_kernel *fn, void *arg)
{
	if (sim_run(s, fn, arg)) {
		print_message("# %s, policy %s, seed %llu, %s memory: %s\n",
			      conf->lockstep ? "lockstep" : "threads",
			      sim_policy_names[conf->policy], (unsigned long long)conf->seed,
			      conf->weak ? "weak" : "strong", sim_report(s));
		sim_free(s);
		fail();
	}
	sim_free(s);
}

void sims_good(struct sim_conf conf, sim_kernel *fn, void *arg)
{
	sims_run(sims_new(conf), &conf, fn, arg);
}

bool sims_fails(struct sim *s, sim_kernel *fn, void *arg, const char *part)
{
	bool failed = sim_run(s, fn, arg), expected = strstr(sim_report(s), part);

	if (failed && !expected) {
		print_message("# failed otherwise than with \"%s\": %s\n", part, sim_report(s));
		sim_free(s);
		fail();
	}
	sim_free(s);
	return failed;
}
