/* SPDX-License-Identifier: MIT */
/*
 * For test programs in the guest: the test pattern, and asking the host to look at what only it can
 * see from outside, the files behind the BAR, the RAM and the disk. hostcheck.py has the same
 * pattern; README.md the requests.
 */
#ifndef GKV_VM_HOSTCHECK_H
#define GKV_VM_HOSTCHECK_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define GKV_PATTERN_GOLDEN	0x9e3779b97f4a7c15ull
#define GKV_PATTERN_STEP	0x9e3779b1ull

static inline uint64_t gkv_pattern_mix(uint64_t value)
{
	value += GKV_PATTERN_GOLDEN;
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
	value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
	return value ^ (value >> 31);
}

/* Eight bytes of the pattern of @seed, at byte 8 * @index. Words 1 to 7 number lines of 64 bytes. */
static inline uint64_t gkv_pattern_word(uint64_t seed, uint64_t index)
{
	uint64_t k = index % 8;

	if (k == 0)
		return gkv_pattern_mix(seed);
	return (gkv_pattern_mix(seed + k * GKV_PATTERN_GOLDEN) >> 2) + index / 8 * GKV_PATTERN_STEP;
}

/*
 * Writes bytes [@start, @start + @len) of the pattern to @to; all three multiples of 8. Eight bytes
 * at a time, as a BAR wants; nothing of it passes through other memory.
 */
static inline void gkv_pattern_fill(void *to, uint64_t seed, uint64_t start, size_t len)
{
	volatile uint64_t *word = to;
	size_t i;

	for (i = 0; i < len / 8; i++)
		word[i] = gkv_pattern_word(seed, start / 8 + i);
}

/*
 * Returns -1 when @from holds bytes [@start, @start + @len) of the pattern, else the offset of the
 * first word that differs. Word by word, so that the check leaves no line of the pattern in RAM.
 */
static inline ssize_t gkv_pattern_check(const void *from, uint64_t seed, uint64_t start, size_t len)
{
	const volatile uint64_t *word = from;
	size_t i;

	for (i = 0; i < len / 8; i++)
		if (word[i] != gkv_pattern_word(seed, start / 8 + i))
			return (ssize_t)(i * 8);
	return -1;
}

static inline int gkv_host_exchange(int fd, const char *request, char *reply, size_t size)
{
	size_t len = strlen(request), have = 0;

	while (len > 0) {
		ssize_t put = write(fd, request, len);

		if (put < 0)
			return -errno;
		request += put;
		len -= put;
	}
	while (have < size - 1) {
		ssize_t got = read(fd, reply + have, 1);

		if (got <= 0)
			return got < 0 ? -errno : -EPIPE;
		if (reply[have] == '\n')
			break;
		have++;
	}
	reply[have] = '\0';
	return 0;
}

static inline int gkv_host_vask(char mark, const char *format, va_list args)
{
	const char *port = getenv("GKV_HOST_PORT");
	char request[256], reply[256];
	int fd, len, rc;

	if (!port)
		return -ENXIO;
	len = snprintf(request, sizeof(request), "\nHOST%c ", mark);
	vsnprintf(request + len, sizeof(request) - len - 1, format, args);
	strcat(request, "\n");

	fflush(stdout);
	fd = open(port, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	flock(fd, LOCK_EX);
	rc = gkv_host_exchange(fd, request, reply, sizeof(reply));
	close(fd);
	if (rc)
		return rc;
	if (strcmp(reply, "yes") == 0)
		return 0;
	printf("# host: %s", request + len);
	printf("# host: %s\n", reply);
	return -EIO;
}

/*
 * Has the host do or check something, such as gkv_host_check("vram-has %#x 0 %zu", seed, len).
 * Returns 0, -EIO when it does not hold (the reason is printed, and the run fails whatever the
 * program makes of it), -ENXIO outside the rig, or another negative errno.
 */
__attribute__((format(printf, 1, 2)))
static inline int gkv_host_check(const char *format, ...)
{
	va_list args;
	int rc;

	va_start(args, format);
	rc = gkv_host_vask(':', format, args);
	va_end(args);
	return rc;
}

/* The same, but the answer is the program's to judge. */
__attribute__((format(printf, 1, 2)))
static inline int gkv_host_ask(const char *format, ...)
{
	va_list args;
	int rc;

	va_start(args, format);
	rc = gkv_host_vask('?', format, args);
	va_end(args);
	return rc;
}

#endif
