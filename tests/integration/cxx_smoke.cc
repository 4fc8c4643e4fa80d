// SPDX-License-Identifier: MIT
// gkv.h and the wire format from C++: compiled with warnings as errors, then run.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <gkv.h>
#include <gkv/control.h>

static int fail(const char *what)
{
	std::fprintf(stderr, "%s: %s\n", what, gkv_error());
	return 1;
}

int main(int argc, char **argv)
{
	struct gkv *g = nullptr;
	if (argc != 2 || gkv_connect(&g, argv[1], 1, 0))
		return fail("connect");

	gkv_ns_info ns = {};
	ns.size = sizeof(ns);
	gkv_qp_opts opts = {};
	opts.size = sizeof(opts);
	opts.depth = 16;
	opts.flags = GKV_QP_CSUM;
	struct gkv_mem *mem = nullptr;
	struct gkv_qp *qp = nullptr;
	if (gkv_ns_open(g, nullptr, 0, &ns) || gkv_mem_alloc(g, 1 << 16, &mem) ||
	    gkv_qp_create(g, &opts, &qp))
		return fail("set-up");

	const std::string value = "a value from C++";
	char *buf = static_cast<char *>(gkv_mem_addr(mem));
	std::memcpy(buf, value.data(), value.size());

	gkv_cmd cmd = {};
	cmd.opcode = GKV_STORE;
	cmd.nsid = ns.nsid;
	cmd.key_len = 3;
	std::memcpy(cmd.key, "c++", 3);
	cmd.buf = buf;
	cmd.len = static_cast<uint32_t>(value.size());
	cmd.crc = gkv_crc32c(0, value.data(), value.size());
	gkv_comp done = {};
	if (gkv_exec(qp, &cmd, &done) || done.status)
		return fail("store");

	std::memset(buf, 0, value.size());
	cmd.opcode = GKV_RETRIEVE;
	cmd.len = 4096;
	cmd.crc = 0;
	if (gkv_exec(qp, &cmd, &done) || done.status)
		return fail("retrieve");
	if (done.result != value.size() || value != std::string(buf, done.result))
		return fail("the value differs");

	// A batch, reaped as it comes.
	std::vector<gkv_cmd> batch(15, cmd);
	for (auto &c : batch)
		c.opcode = GKV_EXIST;
	int left = gkv_submit(qp, batch.data(), static_cast<uint32_t>(batch.size()));
	if (left != 15)
		return fail("submit");
	while (left) {
		int n = gkv_wait(qp, &done, 1, 5000000000ull);
		if (n != 1 || done.status)
			return fail("wait");
		left -= n;
	}
	gkv_close(g);
	std::puts("ok");
	return 0;
}
