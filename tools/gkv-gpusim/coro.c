/* SPDX-License-Identifier: MIT */
#include "coro.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CORO_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define CORO_TSAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define CORO_ASAN 1
#endif
#ifdef __SANITIZE_THREAD__
#define CORO_TSAN 1
#endif

#ifdef CORO_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define STACK_SIZE (256u << 10)		/* red zones make frames several times larger */
#else
#define STACK_SIZE (64u << 10)
#endif
#ifdef CORO_TSAN
#include <sanitizer/tsan_interface.h>
#endif

int stacks_make(struct stacks *s, size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	s->n = n;
	s->size = STACK_SIZE + page;
	s->base = mmap(NULL, n * s->size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (s->base == MAP_FAILED) {
		s->base = NULL;
		return -1;
	}
	for (size_t i = 0; i < n; i++)
		mprotect(s->base + i * s->size, page, PROT_NONE);
	return 0;
}

void stacks_free(struct stacks *s)
{
	if (!s->base)
		return;
#ifdef CORO_ASAN
	/* Coroutines that did not come to their end left red zones behind. */
	for (size_t i = 0; i < s->n; i++)
		__asan_unpoison_memory_region(s->base + i * s->size + s->size - STACK_SIZE,
					      STACK_SIZE);
#endif
	munmap(s->base, s->n * s->size);
	s->base = NULL;
}

/* The sanitizers' part of a switch to @c, and of one back. */
static void enter_begin(struct coro *c)
{
	(void)c;
#ifdef CORO_ASAN
	__sanitizer_start_switch_fiber(&c->caller_fake, c->stack, c->size);
#endif
#ifdef CORO_TSAN
	c->caller_fiber = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(c->fiber, 0);
#endif
}

static void enter_end(struct coro *c)
{
	(void)c;
#ifdef CORO_ASAN
	__sanitizer_finish_switch_fiber(c->fake, &c->caller_stack, &c->caller_size);
#endif
}

static void leave_begin(struct coro *c, int end)
{
	(void)c;
	(void)end;
#ifdef CORO_ASAN
	__sanitizer_start_switch_fiber(end ? NULL : &c->fake, c->caller_stack, c->caller_size);
#endif
#ifdef CORO_TSAN
	__tsan_switch_to_fiber(c->caller_fiber, 0);
#endif
}

static void leave_end(struct coro *c)
{
	(void)c;
#ifdef CORO_ASAN
	__sanitizer_finish_switch_fiber(c->caller_fake, NULL, NULL);
#endif
}

static void __attribute__((noreturn, used)) coro_main(struct coro *c)
{
	enter_end(c);
	c->fn(c->arg);
	abort();
}

#ifdef GKV_SIM_UCONTEXT

/* makecontext() passes ints. */
static void trampoline(unsigned int hi, unsigned int lo)
{
	coro_main((struct coro *)((uintptr_t)hi << 16 << 16 | lo));
}

static void start(struct coro *c)
{
	uintptr_t p = (uintptr_t)c;

	getcontext(&c->here);
	c->here.uc_stack.ss_sp = c->stack;
	c->here.uc_stack.ss_size = c->size;
	c->here.uc_link = NULL;
	makecontext(&c->here, (void (*)(void))trampoline, 2, (unsigned int)(p >> 16 >> 16),
		    (unsigned int)p);
}

static void switch_in(struct coro *c)
{
	swapcontext(&c->caller, &c->here);
}

static void switch_out(struct coro *c)
{
	swapcontext(&c->here, &c->caller);
}

#else

/* Save what a function must preserve and @save's stack pointer; go on at @load. */
void gkv_coro_switch(void **save, void *load);
__asm__(".text\n"
	".p2align 4\n"
	".type gkv_coro_switch, @function\n"
	".globl gkv_coro_switch\n"
	"gkv_coro_switch:\n"
	"	push %rbp\n"
	"	push %rbx\n"
	"	push %r12\n"
	"	push %r13\n"
	"	push %r14\n"
	"	push %r15\n"
	"	mov %rsp, (%rdi)\n"
	"	mov %rsi, %rsp\n"
	"	pop %r15\n"
	"	pop %r14\n"
	"	pop %r13\n"
	"	pop %r12\n"
	"	pop %rbx\n"
	"	pop %rbp\n"
	"	ret\n"
	".size gkv_coro_switch, . - gkv_coro_switch\n"
	/* The first switch to a coroutine comes here, with it in %rbx. */
	".type gkv_coro_entry, @function\n"
	".globl gkv_coro_entry\n"
	"gkv_coro_entry:\n"
	"	mov %rbx, %rdi\n"
	"	xor %ebp, %ebp\n"
	"	call *%r12\n"
	"	ud2\n"
	".size gkv_coro_entry, . - gkv_coro_entry\n");
extern char gkv_coro_entry[];

static void start(struct coro *c)
{
	uintptr_t *sp = (uintptr_t *)((uintptr_t)((char *)c->stack + c->size) & ~(uintptr_t)15);

	/* At the entry, %rsp is a multiple of 16, as before any call. */
	sp -= 2;
	*--sp = (uintptr_t)gkv_coro_entry;
	*--sp = 0;			/* rbp */
	*--sp = (uintptr_t)c;		/* rbx */
	*--sp = (uintptr_t)coro_main;	/* r12 */
	sp -= 3;
	sp[0] = sp[1] = sp[2] = 0;
	c->sp = sp;
}

static void switch_in(struct coro *c)
{
	gkv_coro_switch(&c->caller_sp, c->sp);
}

static void switch_out(struct coro *c)
{
	gkv_coro_switch(&c->sp, c->caller_sp);
}

#endif

void coro_make(struct coro *c, struct stacks *s, size_t i, void (*fn)(void *arg), void *arg)
{
	c->fn = fn;
	c->arg = arg;
	c->stack = s->base + i * s->size + s->size - STACK_SIZE;
	c->size = STACK_SIZE;
	c->fake = c->caller_fake = NULL;
#ifdef CORO_ASAN
	/* One that did not come to its end has left red zones behind. */
	__asan_unpoison_memory_region(c->stack, STACK_SIZE);
#endif
#ifdef CORO_TSAN
	c->fiber = __tsan_create_fiber(0);
#endif
	start(c);
}

void coro_resume(struct coro *c)
{
	enter_begin(c);
	switch_in(c);
	leave_end(c);
}

void coro_yield(struct coro *c)
{
	leave_begin(c, 0);
	switch_out(c);
	enter_end(c);
}

void coro_end(struct coro *c)
{
	leave_begin(c, 1);
	switch_out(c);
	abort();
}

void coro_drop(struct coro *c)
{
	(void)c;
#ifdef CORO_TSAN
	if (c->fiber)
		__tsan_destroy_fiber(c->fiber);
	c->fiber = NULL;
#endif
}
