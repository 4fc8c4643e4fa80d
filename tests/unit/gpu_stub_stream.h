/* SPDX-License-Identifier: MIT */
/* Streams of gpu_stub_lib.c, which includes this where its tables of memory are known. */
#ifndef TESTS_GPU_STUB_STREAM_H
#define TESTS_GPU_STUB_STREAM_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct op {
	struct op *next;
	enum { COPY, FILL, WRITE, WAIT, KERNEL } kind;
	void *to;
	const void *from;
	size_t len;
	uint32_t v, mask;
	unsigned int flags;
	void (*kernel)(void *arg);
	void *arg;
};

/*
 * With a thread, the program's. Without one, the library's own, which are non-blocking: what is
 * enqueued there happens only when it is waited for, so that a wait that is missing shows.
 */
struct stream {
	int magic, threaded, stop;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct op *first, **last;	/* the first is being done */
};

#define MAGIC 0x57e4

static int is_stream(const struct stream *s)
{
	return s && s->magic == MAGIC;
}

static int satisfied(const struct op *o)
{
	uint32_t v = __atomic_load_n((uint32_t *)o->to, __ATOMIC_ACQUIRE) & o->mask;

	switch (o->flags) {
	case 0:
		return (int32_t)(v - o->v) >= 0;
	case 1:
		return v == o->v;
	case 2:
		return (v & o->v) != 0;
	default:
		return ~(v | o->v) != 0;
	}
}

/* Not 0 when a stream without a thread waits for what does not come. */
static int do_op(struct stream *s, const struct op *o)
{
	switch (o->kind) {
	case COPY:
		memcpy(o->to, o->from, o->len);
		break;
	case FILL:
		memset(o->to, (int)o->v, o->len);
		break;
	case WRITE:
		__atomic_store_n((uint32_t *)o->to, o->v, __ATOMIC_RELEASE);
		break;
	case WAIT:
		while (!satisfied(o) && !__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE)) {
			if (!s->threaded)
				return 999;
			usleep(50);
		}
		break;
	case KERNEL:
		o->kernel(o->arg);
		break;
	}
	return 0;
}

static void *stream_main(void *arg)
{
	struct stream *s = arg;
	struct op *o;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		while (!s->first && !s->stop)
			pthread_cond_wait(&s->changed, &s->lock);
		o = s->first;
		if (!o)
			break;
		pthread_mutex_unlock(&s->lock);
		if (!__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE))
			do_op(s, o);
		pthread_mutex_lock(&s->lock);
		s->first = o->next;
		if (!s->first)
			s->last = &s->first;
		free(o);
		pthread_cond_broadcast(&s->changed);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static int push(struct stream *s, struct op o)
{
	struct op *n = malloc(sizeof(*n));

	*n = o;
	n->next = NULL;
	pthread_mutex_lock(&s->lock);
	*s->last = n;
	s->last = &n->next;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static struct stream *new_stream(int threaded)
{
	struct stream *s = calloc(1, sizeof(*s));

	s->magic = MAGIC;
	s->threaded = threaded;
	s->last = &s->first;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	if (threaded && pthread_create(&s->thread, NULL, stream_main, s))
		abort();
	return s;
}

static int sync_stream(struct stream *s)
{
	int ret = 0;

	if (!is_stream(s))
		return 400;
	pthread_mutex_lock(&s->lock);
	while (s->first && s->threaded)
		pthread_cond_wait(&s->changed, &s->lock);
	while (s->first) {
		struct op *o = s->first;

		ret = ret ? ret : do_op(s, o);
		s->first = o->next;
		free(o);
	}
	s->last = &s->first;
	pthread_mutex_unlock(&s->lock);
	return ret;
}

/* A stream of the library's that fails does nothing more. */
static void give_up(struct stream *s)
{
	while (is_stream(s) && !s->threaded && s->first) {
		struct op *o = s->first;

		s->first = o->next;
		free(o);
	}
	if (is_stream(s) && !s->threaded)
		s->last = &s->first;
}

static int free_stream(struct stream *s)
{
	if (!is_stream(s))
		return 400;
	pthread_mutex_lock(&s->lock);
	__atomic_store_n(&s->stop, 1, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	if (s->threaded)
		pthread_join(s->thread, NULL);
	while (s->first) {
		struct op *o = s->first;

		s->first = o->next;
		free(o);
	}
	free(s);
	return 0;
}

static int query(struct stream *s)
{
	int busy;

	if (!is_stream(s))
		return 400;
	pthread_mutex_lock(&s->lock);
	busy = !!s->first;
	pthread_mutex_unlock(&s->lock);
	return busy ? 600 : 0;
}

static void *program_stream(void)
{
	return new_stream(1);
}

static void program_free(void *stream)
{
	free_stream(stream);
}

static void program_sync(void *stream)
{
	sync_stream(stream);
}

static void launch(void *stream, void (*kernel)(void *), void *arg)
{
	push(stream, (struct op){ .kind = KERNEL, .kernel = kernel, .arg = arg });
}

/* Where the device has pinned memory of the host. */
static void *pinned(const void *p, size_t len)
{
	for (int i = 0; i < MAX; i++)
		if (ranges[i].addr && (const char *)p >= ranges[i].addr &&
		    (const char *)p + len <= ranges[i].addr + ranges[i].len)
			return ranges[i].dev + ((const char *)p - ranges[i].addr);
	return NULL;
}

static int in_block(const void *p, size_t len)
{
	for (int i = 0; i < MAX; i++)
		if (blocks[i].addr && (const char *)p >= blocks[i].addr &&
		    (const char *)p + len <= blocks[i].addr + blocks[i].len)
			return 1;
	return 0;
}

/* Between the host and a block. Memory that is not pinned would make it wait. */
static int copy_to(struct stream *s, void *dev, const void *host, size_t len)
{
	if (!is_stream(s))
		return 400;
	if (s->threaded) {
		host = pinned(host, len);
		gpu_stub.copied++;
		gpu_stub.bytes += len;
	}
	if (!host || !in_block(dev, len))
		return 1;
	return push(s, (struct op){ .kind = COPY, .to = dev, .from = host, .len = len });
}

static int copy_from(struct stream *s, void *host, const void *dev, size_t len)
{
	host = pinned(host, len);
	if (!is_stream(s))
		return 400;
	if (!host || !in_block(dev, len))
		return 1;
	gpu_stub.copied++;
	gpu_stub.bytes += len;
	return push(s, (struct op){ .kind = COPY, .to = host, .from = dev, .len = len });
}

#ifndef STUB_HIP
static int set_memory(struct stream *s, void *dev, unsigned char c, size_t len)
{
	if (!is_stream(s))
		return 400;
	if (!has(dev) || !has((char *)dev + len - 1))
		return 1;
	return push(s, (struct op){ .kind = FILL, .to = dev, .v = c, .len = len });
}
#endif

static int write_value(struct stream *s, void *dev, uint32_t v, unsigned int flags)
{
	if (!is_stream(s))
		return 400;
	if (flags || !has(dev) || (uintptr_t)dev % 4)
		return 1;
	gpu_stub.written += s->threaded;
	return push(s, (struct op){ .kind = WRITE, .to = dev, .v = v });
}

static int wait_value(struct stream *s, void *dev, uint32_t v, unsigned int flags, uint32_t mask)
{
	if (!is_stream(s))
		return 400;
	if (flags > 3 || !has(dev) || (uintptr_t)dev % 4)
		return 1;
	gpu_stub.waited += s->threaded;
	return push(s, (struct op){ .kind = WAIT, .to = dev, .v = v, .flags = flags,
				    .mask = mask });
}

#endif
