#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""gkv-bench against a real daemon: nothing is lost, and what is wrong is noticed."""
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import gkvtest  # pylint: disable=wrong-import-position

FIXTURE = "tests/data/conversation-slice.jsonl"
MIX = "retrieve:60,store:20,exist:10,delete:8,list:1,flush:1"

CONFIG = """
[daemon]
reactors = 3
state_dir = {dir}
max_region_bytes = 256M

[namespace mem]
nsid = 1
stack = mem
mem.capacity = 512M

[namespace local]
nsid = 2
stack = local
local.path = {dir}/store
local.size = 512M

[namespace small]
nsid = 3
stack = mem
value_max = 64K

[namespace readonly]
nsid = 4
stack = mem
read_only = yes
"""


def bench(daemon, *args, status=0, seconds=120):
    """Runs gkv-bench (@status None: any); returns its JSON document, or stderr for status 2."""
    path = daemon.socket if daemon else "/nonexistent"
    done = subprocess.run([os.path.join(gkvtest.BUILD, "gkv-bench"), *map(str, args)],
                          env=dict(os.environ, GKV_SOCKET=path),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=seconds * gkvtest.SLOW, check=False)
    stderr = done.stderr.decode(errors="replace")
    if status is not None and done.returncode != status:
        raise gkvtest.TestFailure(f"gkv-bench {' '.join(map(str, args))}: exit status "
                                  f"{done.returncode}, want {status}\n"
                                  f"{done.stdout.decode(errors='replace')[-3000:]}\n"
                                  f"{stderr[-3000:]}")
    return stderr if status == 2 else json.loads(done.stdout)


def run(daemon, *args, **kwargs):
    return bench(daemon, "run", "-o", "json", "-q", *args, **kwargs)


def trace(daemon, *args, **kwargs):
    return bench(daemon, "trace", FIXTURE, "-o", "json", "-q", *args, **kwargs)


def list_keys(daemon, store):
    listing = daemon.gkvctl("list", "-n", store, "--key-format", "hex")
    return [entry["hex"] for entry in listing["keys"]]


def get(daemon, store, key):
    return bytearray(daemon.gkvctl("get", "-n", store, "--key-format", "hex", key, "-",
                                   output=None))


def put(daemon, store, key, value):
    daemon.gkvctl("put", "-n", store, "--key-format", "hex", key, "-", stdin=bytes(value),
                  output=None)


def clean(result):
    gkvtest.equal(result["errors"], 0, f"errors {result['errors_by_status']}")
    gkvtest.equal(result["mismatches"], 0, "mismatches")


def each_store(name):
    """Registers a test that runs once on each store."""
    def register(function):
        for store in ("mem", "local"):
            def body(store=store):
                with gkvtest.Daemon(CONFIG) as daemon:
                    function(daemon, store)
            gkvtest.named(f"{name} ({store})")(body)
        return function
    return register


@each_store("run: a mix of all commands, any size, without an error")
def run_mix(daemon, store):
    result = run(daemon, "--ns", store, "--mix", MIX, "--sizes", "0-20000", "--keys", 300,
                 "--count", 4000, "--threads", 2, "--qps", 3, "--qd", 8, "--dist", "zipf")
    clean(result)
    gkvtest.equal(result["commands"], 4000, "commands")
    gkvtest.equal(sum(c["count"] for c in result["by_command"].values()), 4000, "sum of commands")
    gkvtest.equal(set(result["by_command"]),
                  {"retrieve", "store", "exist", "delete", "list", "flush"}, "commands that ran")
    retrieve = result["by_command"]["retrieve"]
    gkvtest.check(0 < retrieve["p50_ns"] <= retrieve["p99_ns"] <= retrieve["p999_ns"]
                  <= retrieve["max_ns"], f"percentiles are not in order: {retrieve}")
    gkvtest.check(retrieve["bytes"] > 0, "nothing was retrieved")


@each_store("run: PRPs, checksums, polled queue pairs")
def run_flags(daemon, store):
    for flag in ("--prp", "--csum", "--polled", "--spin"):
        result = run(daemon, "--ns", store, "--mix", "retrieve:2,store:1", "--sizes", "1,4K,9999",
                     "--keys", 50, "--count", 500, "--qd", 4, flag)
        clean(result)
        gkvtest.equal(result["misses"], 0, f"{flag}: misses")


@each_store("run: without Deletes a key that was stored is never missing")
def run_no_miss(daemon, store):
    result = run(daemon, "--ns", store, "--mix", "exist:1,retrieve:1", "--keys", 200,
                 "--count", 2000, "--sizes", "100", "--qd", 32)
    clean(result)
    gkvtest.equal(result["misses"], 0, "misses")


@each_store("run: values stored under another seed do not pass")
def run_other_seed(daemon, store):
    args = ("--ns", store, "--mix", "retrieve", "--sizes", "4K", "--keys", 20, "--count", 100)
    clean(run(daemon, *args, "--seed", 1))
    clean(run(daemon, *args, "--seed", 1, "--fill", "no"))
    result = run(daemon, *args, "--seed", 2, "--fill", "no", status=1)
    gkvtest.equal(result["errors"], 0, "errors")
    gkvtest.equal(result["mismatches"], 100, "mismatches")


@each_store("run: one overwritten key among many is noticed")
def run_overwritten(daemon, store):
    args = ("--ns", store, "--mix", "retrieve", "--sizes", "8K", "--keys", 50, "--count", 2000)
    clean(run(daemon, *args))
    keys = list_keys(daemon, store)
    gkvtest.equal(len(keys), 50, "keys listed")
    value = get(daemon, store, keys[7])
    gkvtest.equal(len(value), 8192, "length of a value")
    value[5000] ^= 1
    put(daemon, store, keys[7], value)
    result = run(daemon, *args, "--fill", "no", status=1)
    gkvtest.equal(result["errors"], 0, "errors")
    gkvtest.check(0 < result["mismatches"] < 300, f"mismatches: {result['mismatches']}")


@each_store("trace: a slice of a real trace, all ranks and layer groups, hits as they must be")
def trace_layout(daemon, store):
    ideal = trace(daemon, "--dry-run", "--limit", 40)["trace"]
    # 4 ranks of 2 values each; one token a block keeps it small, the arithmetic is the same.
    result = trace(daemon, "--ns", store, "--limit", 40, "--tp", 2, "--pp", 2,
                   "--layers-per-value", 8, "--block-tokens", 1, "--qd", 16)
    clean(result)
    gkvtest.equal(result["layout"]["values_per_block"], 8, "values per block")
    gkvtest.equal(result["requests"], 40, "requests")
    gkvtest.equal(result["blocks"], ideal["blocks"], "blocks")
    gkvtest.equal(result["hit_blocks"], ideal["blocks"] - ideal["distinct_blocks"], "hits")
    block = 128 << 10
    gkvtest.equal(result["stored_bytes"], ideal["distinct_blocks"] * block, "bytes stored")
    gkvtest.equal(result["retrieved_bytes"], result["hit_blocks"] * block, "bytes retrieved")
    # The second time everything is there.
    again = trace(daemon, "--ns", store, "--limit", 40, "--tp", 2, "--pp", 2,
                  "--layers-per-value", 8, "--block-tokens", 1, "--qd", 16)
    clean(again)
    gkvtest.equal(again["hit_blocks"], ideal["blocks"], "hits of the second replay")
    gkvtest.equal(again["stored_bytes"], 0, "bytes stored by the second replay")


@each_store("F74, F76: trace: another model, layout, rank or layer group never hits")
def trace_no_collision(daemon, store):
    common = ("--ns", store, "--limit", 3, "--block-tokens", 1)
    hits = None
    for args in (("--tp", 1), ("--tp", 2), ("--tp", 2, "--layers-per-value", 16),
                 ("--pp", 2, "--rank", 1), ("--pp", 2, "--rank", 0), ("--model", "Mistral-7B"),
                 ("--elem-bytes", 1), ("--value-size", "4K"), ("--salt", "x")):
        result = trace(daemon, *common, *args)
        clean(result)
        hits = result["hit_blocks"] if hits is None else hits
        gkvtest.equal(result["hit_blocks"], hits, f"hits with {args}")


@each_store("trace: several clients")
def trace_clients(daemon, store):
    result = trace(daemon, "--ns", store, "--limit", 60, "--value-size", 5000, "--clients", 3,
                   "--qd", 4)
    clean(result)
    gkvtest.equal(result["requests"], 60, "requests")


@each_store("trace: a damaged value is noticed")
def trace_damaged(daemon, store):
    args = ("--ns", store, "--limit", 5, "--value-size", "16K")
    clean(trace(daemon, *args))
    result = trace(daemon, *args, "--seed", 2, status=1)
    gkvtest.check(result["mismatches"] > 50, "values of another seed passed")
    clean(trace(daemon, *args))
    keys = list_keys(daemon, store)
    value = get(daemon, store, keys[3])
    value[-1] ^= 0x80
    put(daemon, store, keys[3], value)
    result = trace(daemon, *args, status=1)
    gkvtest.check(result["mismatches"] >= 1, "a flipped bit passed")
    gkvtest.equal(result["errors"], 0, "errors")
    # Cut short by one byte.
    put(daemon, store, keys[4], value[:-1])
    result = trace(daemon, *args, status=1)
    gkvtest.check(result["mismatches"] >= 2, "a short value passed")


FAULTS = """
[daemon]
reactors = 2
state_dir = {dir}

[namespace main]
nsid = 1
stack = fault,mem
verify = off
deadline = 300ms
fault.rules = %s
"""


def with_faults(rules, function):
    with gkvtest.Daemon(FAULTS % rules) as daemon:
        return function(daemon)


SMALL_TRACE = ("--limit", 8, "--value-size", 3000)


@gkvtest.named("F80: trace: a value gone between Exist and Retrieve shortens the hit, no error")
def trace_gone():
    def replay(daemon):
        first = trace(daemon, *SMALL_TRACE)
        clean(first)
        again = trace(daemon, *SMALL_TRACE)
        clean(again)
        gkvtest.check(again["gone_after_exist"] > 0, "nothing was gone")
        gkvtest.check(again["hit_blocks"] < again["blocks"], "what was gone counts as hit")
        # What follows the gap is stored again.
        gkvtest.equal(again["stored_bytes"], (again["blocks"] - again["hit_blocks"]) * 3000,
                      "bytes stored")
    with_faults("retrieve:status=0x87:every=40", replay)


@gkvtest.named("run and trace: one flipped bit in transit is noticed")
def flipped():
    def replay(daemon):
        trace(daemon, *SMALL_TRACE, status=None)
        result = trace(daemon, *SMALL_TRACE, status=1)
        gkvtest.check(result["mismatches"] > 0, "trace let a flipped bit pass")
        gkvtest.equal(result["errors"], 0, "errors")
        result = run(daemon, "--mix", "retrieve", "--count", 300, "--keys", 20, "--sizes", "1-5000",
                     status=1)
        gkvtest.equal(result["mismatches"], 10, "mismatches of 300 with every 30th flipped")
    with_faults("retrieve:flip:every=30", replay)


@gkvtest.named("trace: what passes by itself is tried again, what does not is an error by name")
def trace_errors():
    def transient(daemon):
        result = trace(daemon, *SMALL_TRACE)
        clean(result)
        gkvtest.check(result["retries"] > 0, "nothing was tried again")
        gkvtest.equal(result["retried"], result["retries"], "retries with unknown outcome")
    with_faults("store:status=0x22:every=9 exist:status=0x22:every=9", transient)

    def unknown(daemon):
        result = run(daemon, "--mix", "store:1,retrieve:1", "--count", 900, "--keys", 50, "--qd", 4)
        clean(result)
        gkvtest.check(result["retried"] > 50, f"tried again: {result['retried']}")
        gkvtest.equal(result["commands"], 900, "commands")
        result = run(daemon, "--mix", "delete", "--fill", "no", "--keys", 50,
                     "--count", 20, status=1)
        gkvtest.equal(result["errors_by_status"], {"Transient Transport Error": 20}, "names")
        gkvtest.equal(result["retried"], 20 * 8, "bounded")
    with_faults("store:status=0x22:every=9 retrieve:status=0x22:every=9 delete:status=0x22",
                unknown)

    def full(daemon):
        for result in (trace(daemon, *SMALL_TRACE, status=1),
                       run(daemon, "--mix", "store", "--count", 400, status=1)):
            gkvtest.check(result["errors"] > 0, "no error")
            gkvtest.equal(result["errors_by_status"],
                          {"Namespace is Write Protected": result["errors"]}, "names")
    with_faults("store:erofs:every=20", full)


@gkvtest.named("trace: a command that never completes ends with the deadline and is tried again")
def trace_lost():
    def replay(daemon):
        result = trace(daemon, *SMALL_TRACE)
        clean(result)
        gkvtest.check(result["retries"] > 0, "nothing was tried again")
        gkvtest.check(result["by_command"]["store"]["max_ns"] > 250e6, "nothing waited")
    with_faults("store:lost:every=150", replay)


@gkvtest.named("trace: kill -9 and restart of the daemon during a replay, nothing is lost")
def trace_restart():
    config = CONFIG.replace("local.size = 512M", "local.size = 1G")
    with gkvtest.Daemon(config) as daemon:
        # Kept to the time stamps, 8 times as fast, so that it lasts however fast the disk is.
        args = [os.path.join(gkvtest.BUILD, "gkv-bench"), "trace", FIXTURE, "-o", "json", "-q",
                "--ns", "local", "--limit", "100", "--value-size", "200K", "--clients", "2",
                "--speed", "8"]
        with subprocess.Popen(args, env=dict(os.environ, GKV_SOCKET=daemon.socket),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            try:
                for _ in range(3):
                    time.sleep(0.5)
                    gkvtest.check(process.poll() is None, "the replay ended too early")
                    daemon.kill9()
                    daemon.start()
                out, err = process.communicate(timeout=120 * gkvtest.SLOW)
            finally:
                process.kill()
        gkvtest.equal(process.returncode, 0,
                      f"exit status\n{out.decode()[-1500:]}{err.decode()[-1500:]}")
        result = json.loads(out)
        clean(result)
        gkvtest.equal(result["requests"], 100, "requests")
        # All that was acknowledged is there, and what it should be.
        again = trace(daemon, "--ns", "local", "--limit", 100, "--value-size", "200K")
        clean(again)
        gkvtest.equal(again["hit_blocks"], again["blocks"], "hits after the restarts")


@gkvtest.named("trace: values that exceed the namespace's maximum are refused, not truncated")
def trace_too_large():
    with gkvtest.Daemon(CONFIG) as daemon:
        error = trace(daemon, "--ns", "small", "--block-tokens", 1, status=2)
        gkvtest.check("exceed the largest value of namespace small, 64 KiB" in error, error)
        gkvtest.check("--layers-per-value 16" in error, error)
        clean(trace(daemon, "--ns", "small", "--block-tokens", 1, "--layers-per-value", 16,
                    "--limit", 2))
        error = trace(daemon, "--ns", "small", "--value-size", "65K", status=2)
        gkvtest.check("exceed the largest value of namespace small" in error, error)


@gkvtest.named("F116: run: configuration and namespace are checked before the start")
def run_checks():
    with gkvtest.Daemon(CONFIG) as daemon:
        for args, words in (
                (("--ns", "small", "--sizes", "1K-65537"), ("65537 bytes", "65536 bytes", "small")),
                (("--ns", "mem", "--qd", "5000"), ("5001", "4096")),
                (("--ns", "mem", "--qd", "64", "--sizes", "8M"), ("512 MiB", "256 MiB")),
                (("--ns", "readonly",), ("read-only", "readonly")),
                (("--ns", "nothing",), ("nothing",)),
                (("--mix", "retrieve:1,steal:2"), ("steal",)),
                (("--mix", "store:0"), ("weight",)),
                (("--sizes", "4K-1K"), ("4K-1K",)),
                (("--threads", "4", "--qps", "2"), ("4", "2")),
                (("--qd", "4", "--batch", "8"), ("8", "4")),
                (("--dist", "zipf:2"), ("zipf:2",)),
                (("--keys", "0"), ("--keys",)),
                (("--cpus", "x"), ("--cpus",))):
            error = run(daemon, *args, status=2)
            for word in words:
                gkvtest.check(word in error, f"{args}: {word!r} is not in: {error}")
        # Still as good as new.
        clean(run(daemon, "--ns", "mem", "--keys", 10, "--count", 20))


@gkvtest.named("run and trace: no daemon is exit status 2 and a reason")
def no_daemon():
    gkvtest.check("/nonexistent" in run(None, status=2), "the path is not named")
    gkvtest.check("/nonexistent" in trace(None, status=2), "the path is not named")


@gkvtest.named("run: time limit, plot")
def run_plot():
    with gkvtest.Daemon(CONFIG) as daemon:
        path = os.path.join(daemon.dir, "plot.svg")
        result = run(daemon, "--ns", "mem", "--mix", "retrieve:1,store:1", "--time", "300ms",
                     "--keys", 100, "--plot", path)
        clean(result)
        gkvtest.check(0.25 < result["seconds"] < 5 * gkvtest.SLOW, f"ran {result['seconds']} s")
        root = xml.etree.ElementTree.parse(path).getroot()
        gkvtest.equal(root.tag, "{http://www.w3.org/2000/svg}svg", "root element")
        text = " ".join("".join(e.itertext())
                        for e in root.iter("{http://www.w3.org/2000/svg}text"))
        for word in ("retrieve: p50", "store: p50", "latency", "cumulative share"):
            gkvtest.check(word in text, f"{word!r} is not in the plot")


@gkvtest.named("F65: registration and queue pairs are reported apart from the run")
def setup_apart():
    with gkvtest.Daemon(CONFIG) as daemon:
        for result in (run(daemon, "--ns", "mem", "--keys", 10, "--count", 10),
                       trace(daemon, "--ns", "mem", "--limit", 2, "--value-size", 64)):
            for name in ("connect_ns", "register_ns", "queue_pairs_ns"):
                gkvtest.check(result["setup"][name] > 0, f"{name} is missing")


@gkvtest.named("idle: processor time and memory of idle queue pairs")
def idle():
    with gkvtest.Daemon(CONFIG) as daemon:
        result = bench(daemon, "idle", "--ns", "mem", "--qps", 8, "--depth", 64, "--time", "200ms",
                       "-o", "json")
        gkvtest.equal(result["qps"], 8, "queue pairs")
        gkvtest.equal(result["ring_bytes_per_qp"], 8192, "ring bytes")
        gkvtest.check(0 <= result["daemon_cores"] < 3.5, f"{result['daemon_cores']} cores")


@gkvtest.named("floor: every part of it")
def floor():
    with gkvtest.Daemon(CONFIG) as daemon:
        path = os.path.join(daemon.dir, "file")
        with open(path, "wb") as file:
            file.write(os.urandom(1 << 20))
        result = bench(None, "floor", "--time", "20ms", "--file", path, "--sizes", "4K",
                       "--qds", "1", "--write", "-o", "json")
        floors = {f["name"]: f for f in result["floors"]}
        for name in ("bare ring, QD 1", "bare ring + 4 KiB copy, QD 1", "cross-core ping-pong"):
            gkvtest.check(floors[name]["p50_ns"] > 0, f"{name}: no p50")
        for name in ("bare ring, deep", "memcpy 32 MiB"):
            gkvtest.check(floors[name]["per_s"] > 0, f"{name}: no rate")
        gkvtest.check(0 < floors["sleep 1 ms, repeatedly"]["cores"] < 1, "sleep: no share")
        for name in ("fio read 4 KiB, QD 1", "fio write 4 KiB, QD 1"):
            if "skipped" in floors[name]:
                raise gkvtest.Skip(floors[name]["skipped"])
            gkvtest.check(floors[name]["per_s"] > 0, f"{name}: no rate")


if __name__ == "__main__":
    gkvtest.main()
