/* SPDX-License-Identifier: MIT */
/* gkv-bench trace: the parser, the arithmetic of the model presets, the keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../tools/gkv-bench/layout.c"
#include "../../tools/gkv-bench/tracefile.c"
#include "../../tools/gkv-bench/util.c"

#define KIB 1024ull
#define MIB (1024 * KIB)

static struct layout layout_of(const char *model)
{
	return (struct layout){ .preset = preset_find(model),
				.block_tokens = 512,
				.elem_bytes = 2,
				.tp = 1,
				.pp = 1,
				.rank = LAYOUT_ALL_RANKS,
				.salt = "" };
}

static void test_presets(void **state)
{
	(void)state;
	assert_int_equal(preset_token_bytes(preset_find("Llama-3-8B"), 2), 128 * KIB);
	assert_int_equal(preset_token_bytes(preset_find("qwen2.5-32b"), 2), 256 * KIB);
	assert_int_equal(preset_token_bytes(preset_find("LLAMA-3-70B"), 2), 320 * KIB);
	assert_int_equal(preset_token_bytes(preset_find("Llama-3-8B"), 1), 64 * KIB);
	assert_int_equal(preset_token_bytes(preset_find("DeepSeek-V3"), 2), 61 * 576 * 2);
	assert_null(preset_find("Llama-3"));
}

/* The shards of a block hold each layer and head once: their sizes add up. */
static void check_sum(struct layout l, uint64_t want_sum, int want_n, uint64_t want_max)
{
	struct shard *s = NULL;
	char err[256] = "";
	uint64_t sum = 0, max = 0;
	int n = layout_shards(&l, &s, err, sizeof(err));

	assert_int_equal(n, want_n);
	for (int i = 0; i < n; i++) {
		sum += s[i].size;
		max = s[i].size > max ? s[i].size : max;
	}
	assert_int_equal(sum, want_sum);
	assert_int_equal(max, want_max);
	free(s);
}

static void test_sharding(void **state)
{
	struct layout l = layout_of("Llama-3-8B");

	(void)state;
	check_sum(l, 64 * MIB, 1, 64 * MIB);
	check_sum(layout_of("Qwen2.5-32B"), 128 * MIB, 1, 128 * MIB);
	check_sum(layout_of("Llama-3-70B"), 160 * MIB, 1, 160 * MIB);
	l.tp = 8;
	check_sum(l, 64 * MIB, 8, 8 * MIB);
	l.layers_per_value = 5;
	/* 32 layers: six values of five and one of two, on each of eight ranks. */
	check_sum(l, 64 * MIB, 8 * 7, 5 * 256 * KIB);
	l.pp = 3;
	/* Stages of 11, 11 and 10 layers. */
	check_sum(l, 64 * MIB, 8 * (3 + 3 + 2), 5 * 256 * KIB);
	l.rank = 23;
	check_sum(l, 10 * 256 * KIB, 2, 5 * 256 * KIB);
	/* More ranks than heads: each head is there twice. */
	l = layout_of("Llama-3-8B");
	l.tp = 16;
	check_sum(l, 128 * MIB, 16, 8 * MIB);
	l = (struct layout){
		.value_size = 12345, .block_tokens = 512, .tp = 1, .pp = 1, .salt = ""
	};
	check_sum(l, 12345, 1, 12345);
}

static void test_refused(void **state)
{
	struct layout l = layout_of("Llama-3-8B");
	struct shard *s = NULL;
	char err[256];

	(void)state;
	l.tp = 3;
	assert_int_equal(layout_shards(&l, &s, err, sizeof(err)), -1);
	assert_non_null(strstr(err, "8 KV heads"));
	l.tp = 1;
	l.pp = 33;
	assert_int_equal(layout_shards(&l, &s, err, sizeof(err)), -1);
	assert_non_null(strstr(err, "32"));
	l.pp = 2;
	l.rank = 2;
	assert_int_equal(layout_shards(&l, &s, err, sizeof(err)), -1);
	assert_non_null(strstr(err, "0 to 1"));
}

/* The documented hash, computed elsewhere. */
static void test_key_vector(void **state)
{
	static const uint8_t want[16] = { 0xce, 0xdb, 0xaf, 0x2e, 0x15, 0xf7, 0x01, 0xab,
					  0xd2, 0x5c, 0xd6, 0x47, 0xfd, 0x0a, 0x08, 0x4b };
	struct layout l = layout_of("llama-3-8b");
	struct shard *s = NULL;
	uint8_t key[16];
	char err[256];
	int n;

	(void)state;
	l.tp = 8;
	l.pp = 2;
	l.rank = 9;
	l.layers_per_value = 8;
	n = layout_shards(&l, &s, err, sizeof(err));
	assert_int_equal(n, 2);
	assert_int_equal(s[0].first_layer, 16);
	assert_int_equal(s[0].last_layer, 23);
	shard_key(&s[0], 46, key);
	assert_memory_equal(key, want, 16);
	free(s);
}

static int by_key(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

/* F74, F76: no two models, layouts, ranks, layer groups or blocks share a key. */
static void test_keys_distinct(void **state)
{
	enum { BLOCKS = 50, MAX = 200000 };
	static const char *const models[] = { "Llama-3-8B", "Mistral-7B", "Llama-3-70B" };
	static const struct {
		uint32_t tp, pp, lpv, elem, tokens;
		const char *salt;
	} layouts[] = {
		{ 1, 1, 0, 2, 512, "" }, { 2, 1, 0, 2, 512, "" },  { 1, 2, 0, 2, 512, "" },
		{ 8, 1, 4, 2, 512, "" }, { 8, 1, 8, 2, 512, "" },  { 8, 1, 8, 1, 512, "" },
		{ 8, 1, 8, 2, 256, "" }, { 8, 1, 8, 2, 512, "x" },
	};
	uint8_t(*keys)[16] = malloc(MAX * 16);
	size_t n = 0;

	(void)state;
	assert_non_null(keys);
	for (size_t m = 0; m < ARRAY_SIZE(models); m++) {
		for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
			struct layout l = layout_of(models[m]);
			struct shard *s = NULL;
			char err[256];
			int shards;

			l.tp = layouts[i].tp;
			l.pp = layouts[i].pp;
			l.layers_per_value = layouts[i].lpv;
			l.elem_bytes = layouts[i].elem;
			l.block_tokens = layouts[i].tokens;
			l.salt = layouts[i].salt;
			shards = layout_shards(&l, &s, err, sizeof(err));
			assert_true(shards > 0);
			for (int k = 0; k < shards; k++) {
				for (uint64_t id = 0; id < BLOCKS; id++) {
					assert_true(n < MAX);
					shard_key(&s[k], id, keys[n++]);
				}
			}
			free(s);
		}
	}
	qsort(keys, n, 16, by_key);
	for (size_t i = 1; i < n; i++)
		assert_int_not_equal(memcmp(keys[i - 1], keys[i], 16), 0);
	free(keys);
}

/* Parse @text from a temporary file. */
static int load(const char *text, size_t skip, size_t limit, struct trace *t, char *err, size_t n)
{
	char path[] = "/tmp/gkv-trace-XXXXXX";
	int fd = mkstemp(path), rc;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	rc = trace_load(path, skip, limit, t, err, n);
	unlink(path);
	return rc;
}

static void test_parser(void **state)
{
	static const char text[] = "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": "
				   "5, \"hash_ids\": [0, 1]}\n"
				   "\n"
				   "{\"timestamp\": 12.5, \"hash_ids\": [0, 2, 9007199254740993], "
				   "\"extra\": {\"a\": [1]}}\n"
				   "{\"hash_ids\": [], \"input_length\": 1}\n"
				   "{\"hash_ids\": [0, 1, 2]}";
	struct trace t;
	struct trace_ideal ideal;
	char err[256] = "";

	(void)state;
	assert_int_equal(load(text, 0, 0, &t, err, sizeof(err)), 0);
	assert_int_equal(t.n_reqs, 4);
	assert_int_equal(t.n_ids, 8);
	assert_int_equal(t.reqs[0].input_length, 600);
	assert_int_equal(t.reqs[0].output_length, 5);
	assert_true(t.reqs[1].timestamp_ms == 12.5);
	assert_int_equal(t.reqs[1].first, 2);
	assert_int_equal(t.reqs[1].blocks, 3);
	assert_int_equal(t.ids[4], 9007199254740993);
	assert_int_equal(t.reqs[2].blocks, 0);
	assert_int_equal(trace_ideal(&t, &ideal), 0);
	assert_int_equal(ideal.blocks, 8);
	assert_int_equal(ideal.distinct, 4);
	assert_int_equal(ideal.hits, 4);
	trace_free(&t);
	assert_int_equal(load(text, 1, 2, &t, err, sizeof(err)), 0);
	assert_int_equal(t.n_reqs, 2);
	assert_int_equal(t.reqs[0].blocks, 3);
	trace_free(&t);
}

static void test_parser_refuses(void **state)
{
	static const struct {
		const char *text, *why;
	} bad[] = {
		{ "", "no requests" },
		{ "{\"hash_ids\": [1]}\n{\"hash_ids\": 1}\n", ":2: no array" },
		{ "{\"hash_ids\": [1.5]}\n", "whole numbers" },
		{ "{\"hash_ids\": [\"1\"]}\n", "whole numbers" },
		{ "{\"timestamp\": \"x\", \"hash_ids\": [1]}\n", "must be numbers" },
		{ "{\"timestamp\": -1, \"hash_ids\": [1]}\n", "must be numbers" },
		{ "{\"hash_ids\": [1}\n", ":1: " },
		{ "{\"hash_ids\": [1]", "incomplete" },
		{ "{\"hash_ids\": [1]} x\n", "text after" },
		{ "[1]\n", "not a JSON object" },
		{ "{}\n", "no array" },
	};
	struct trace t;
	char err[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		err[0] = 0;
		assert_int_equal(load(bad[i].text, 0, 0, &t, err, sizeof(err)), -1);
		assert_non_null(strstr(err, bad[i].why));
	}
}

/* The fixture: what its README says. */
static void test_fixture(void **state)
{
	struct trace t;
	struct trace_ideal ideal;
	char err[256] = "";

	(void)state;
	assert_int_equal(
		trace_load("tests/data/conversation-slice.jsonl", 0, 0, &t, err, sizeof(err)), 0);
	assert_int_equal(t.n_reqs, 300);
	assert_int_equal(trace_ideal(&t, &ideal), 0);
	assert_int_equal(ideal.blocks, 7703);
	assert_int_equal(ideal.distinct, 6505);
	assert_int_equal(ideal.hits, 7703 - 6505);
	trace_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_presets),	       cmocka_unit_test(test_sharding),
		cmocka_unit_test(test_refused),	       cmocka_unit_test(test_key_vector),
		cmocka_unit_test(test_keys_distinct),  cmocka_unit_test(test_parser),
		cmocka_unit_test(test_parser_refuses), cmocka_unit_test(test_fixture),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
