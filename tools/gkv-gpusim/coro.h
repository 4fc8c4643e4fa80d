/* SPDX-License-Identifier: MIT */
/*
 * Coroutines. ucontext asks the kernel for the signal mask on each switch, which lanes do at
 * each access to memory; so there is a switch of a few instructions where this knows the
 * processor, and ucontext elsewhere (or with GKV_SIM_UCONTEXT). The sanitizers are told.
 */
#ifndef GKV_GPUSIM_CORO_H
#define GKV_GPUSIM_CORO_H

#include <stddef.h>

#if !defined(__x86_64__) && !defined(GKV_SIM_UCONTEXT)
#define GKV_SIM_UCONTEXT
#endif
#ifdef GKV_SIM_UCONTEXT
#include <ucontext.h>
#endif

/* Stacks of @n coroutines, each above a page that cannot be touched. */
struct stacks {
	char *base;
	size_t size;	/* of each, with that page */
	size_t n;
};

struct coro {
#ifdef GKV_SIM_UCONTEXT
	ucontext_t here, caller;
#else
	void *sp;		/* of the coroutine while it does not run */
	void *caller_sp;
#endif
	void (*fn)(void *arg);
	void *arg;
	void *stack;
	size_t size;
	void *fake;		/* ASan's other stack */
	void *caller_fake;
	const void *caller_stack;
	size_t caller_size;
	void *fiber;		/* TSan's */
	void *caller_fiber;
};

int stacks_make(struct stacks *s, size_t n);
void stacks_free(struct stacks *s);

/* @fn(@arg) on stack @i; it must not return but end with coro_end(). */
void coro_make(struct coro *c, struct stacks *s, size_t i, void (*fn)(void *arg), void *arg);
/* Run @c until it yields or ends. */
void coro_resume(struct coro *c);
/* Within @c: go back to the caller of coro_resume(). */
void coro_yield(struct coro *c);
void coro_end(struct coro *c) __attribute__((noreturn));
/* @c does not run again. */
void coro_drop(struct coro *c);

#endif
