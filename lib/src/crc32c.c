/* SPDX-License-Identifier: MIT */
/*
 * crc32c (Castagnoli, reflected 0x82f63b78, initial value and final inversion of all
 * ones): by the CPU's instruction where there is one, else by tables.
 */
#include <endian.h>
#include <pthread.h>
#include <string.h>

#include "impl.h"

#define POLY	0x82f63b78u
/* Bytes of each of the three streams that the instruction works on at a time. */
#define LONG	8192u
#define SHORT	256u

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t tab[8][256];
static uint32_t (*update)(uint32_t crc, const uint8_t *p, size_t len);

static uint32_t crc_table(uint32_t crc, const uint8_t *p, size_t len)
{
	uint64_t v;

	for (; len >= 8; len -= 8, p += 8) {
		memcpy(&v, p, 8);
		v = le64toh(v) ^ crc;
		crc = 0;
		for (int i = 0; i < 8; i++)
			crc ^= tab[7 - i][(v >> (8 * i)) & 0xff];
	}
	while (len--)
		crc = tab[0][(crc ^ *p++) & 0xff] ^ (crc >> 8);
	return crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>

/* Effect of LONG and SHORT zero bytes on a crc, a byte of it at a time. */
static uint32_t long_zeros[4][256], short_zeros[4][256];

static void zeros_init(uint32_t zeros[4][256], size_t len)
{
	uint32_t bit[32];

	/* The crc is linear, so what each bit turns into tells all. */
	for (int i = 0; i < 32; i++) {
		bit[i] = 1u << i;
		for (size_t n = 0; n < len; n++)
			bit[i] = tab[0][bit[i] & 0xff] ^ (bit[i] >> 8);
	}
	for (int k = 0; k < 4; k++) {
		for (uint32_t v = 0; v < 256; v++) {
			zeros[k][v] = 0;
			for (int i = 0; i < 8; i++)
				if (v & (1u << i))
					zeros[k][v] ^= bit[8 * k + i];
		}
	}
}

static inline uint32_t shift(uint32_t zeros[4][256], uint32_t crc)
{
	return zeros[0][crc & 0xff] ^ zeros[1][(crc >> 8) & 0xff] ^ zeros[2][(crc >> 16) & 0xff] ^
	       zeros[3][crc >> 24];
}

static inline uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return v;
}

/* The instruction takes three cycles and starts every cycle: three streams at once. */
__attribute__((target("sse4.2"))) static inline const uint8_t *
triple(uint64_t *crc, const uint8_t *p, size_t len, uint32_t zeros[4][256])
{
	uint64_t a = *crc, b = 0, c = 0;

	for (size_t i = 0; i < len; i += 8) {
		a = _mm_crc32_u64(a, get64(p + i));
		b = _mm_crc32_u64(b, get64(p + len + i));
		c = _mm_crc32_u64(c, get64(p + 2 * len + i));
	}
	a = shift(zeros, (uint32_t)a) ^ b;
	*crc = shift(zeros, (uint32_t)a) ^ c;
	return p + 3 * len;
}

__attribute__((target("sse4.2"))) static uint32_t crc_sse42(uint32_t crc32, const uint8_t *p,
							     size_t len)
{
	uint64_t crc = crc32;

	for (; len >= 3 * LONG; len -= 3 * LONG)
		p = triple(&crc, p, LONG, long_zeros);
	for (; len >= 3 * SHORT; len -= 3 * SHORT)
		p = triple(&crc, p, SHORT, short_zeros);
	for (; len >= 8; len -= 8, p += 8)
		crc = _mm_crc32_u64(crc, get64(p));
	while (len--)
		crc = _mm_crc32_u8((uint32_t)crc, *p++);
	return (uint32_t)crc;
}

static void pick(void)
{
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("sse4.2"))
		return;
	zeros_init(long_zeros, LONG);
	zeros_init(short_zeros, SHORT);
	update = crc_sse42;
}

#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>

__attribute__((target("+crc"))) static uint32_t crc_arm(uint32_t crc, const uint8_t *p, size_t len)
{
	uint64_t v;

	for (; len >= 8; len -= 8, p += 8) {
		memcpy(&v, p, 8);
		crc = __crc32cd(crc, v);
	}
	while (len--)
		crc = __crc32cb(crc, *p++);
	return crc;
}

static void pick(void)
{
	if (getauxval(AT_HWCAP) & (1 << 7))	/* HWCAP_CRC32 */
		update = crc_arm;
}
#else
static void pick(void)
{
}
#endif

static void init(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int k = 0; k < 8; k++)
			c = c & 1 ? POLY ^ (c >> 1) : c >> 1;
		tab[0][i] = c;
	}
	for (uint32_t i = 0; i < 256; i++)
		for (int k = 1; k < 8; k++)
			tab[k][i] = tab[0][tab[k - 1][i] & 0xff] ^ (tab[k - 1][i] >> 8);
	update = crc_table;
	pick();
}

uint32_t gkv_crc32c(uint32_t crc, const void *data, size_t len)
{
	pthread_once(&once, init);
	return ~update(~crc, data, len);
}
