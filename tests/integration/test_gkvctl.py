#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-timeout: 300
"""gkvctl against a running daemon: values as files, keys as text, reports, exit codes."""
import base64
import ctypes
import json
import os
import pty
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import gkvtest  # noqa: E402
from gkvtest import BUILD, Daemon, check, equal  # noqa: E402

VALUE_MAX = 8 << 20
GKVCTL = os.path.join(BUILD, "gkvctl")


def config(stack):
    layer = "local.path = {dir}/%s\nlocal.size = 512M\n" if stack == "local" else ""
    text = f"[daemon]\nreactors = 2\nstate_dir = {{dir}}\n"
    spaces = [("main", f"value_max = {VALUE_MAX}\n"), ("small", "value_max = 1000\n"),
              ("frozen", "read_only = yes\n")]
    for nsid, (name, more) in enumerate(spaces, 1):
        text += f"\n[namespace {name}]\nnsid = {nsid}\nstack = {stack}\naccess = *:rw\n{more}"
        text += layer % name if layer else ""
    return text


def random_bytes(size, seed):
    return random.Random(seed).randbytes(size)


def fails(daemon, status, *args, stdin=None):
    """Runs gkvctl, insists on the exit status and on one line of stderr; returns that."""
    done = daemon.gkvctl(*args, output=None, status=None, stdin=stdin)
    equal(done.returncode, status, f"exit status of {args} ({done.stderr!r})")
    text = done.stderr.decode()
    check(text.count("\n") == 1 and text.startswith("gkvctl"), f"one line on stderr, not {text!r}")
    return text


def round_trip(stack):
    sizes = [0, 1, 63, 64, 127, 4095, 4096, 4097, 65537, 1000003, VALUE_MAX - 1, VALUE_MAX]
    with Daemon(config(stack)) as daemon:
        source, target = os.path.join(daemon.dir, "source"), os.path.join(daemon.dir, "target")
        for size in sizes:
            data = random_bytes(size, size)
            with open(source, "wb") as file:
                file.write(data)
            daemon.gkvctl("put", "by-file", source, output=None)
            daemon.gkvctl("put", "by-pipe", output=None, stdin=data)
            for key in ("by-file", "by-pipe"):
                equal(daemon.gkvctl("get", key, output=None), data, f"{key}, {size} bytes, stdout")
                daemon.gkvctl("get", key, target, output=None)
                with open(target, "rb") as file:
                    equal(file.read(), data, f"{key}, {size} bytes to a file")
            told = daemon.gkvctl("get", "by-file")
            equal(base64.b64decode(told["value"]), data, "value in JSON")
            equal(told["bytes"], size, "bytes in JSON")


@gkvtest.named("files make the round trip byte for byte: mem")
def round_trip_mem():
    round_trip("mem")


@gkvtest.named("files make the round trip byte for byte: local")
def round_trip_local():
    round_trip("local")


@gkvtest.test
def a_value_above_the_limit_is_refused_with_the_limit():
    with Daemon(config("mem")) as daemon:
        for way in ("file", "stdin"):
            source = os.path.join(daemon.dir, "source")
            with open(source, "wb") as file:
                file.write(b"x" * 1001)
            text = fails(daemon, 1, "-n", "small", "put", "k", source if way == "file" else "-",
                         stdin=b"x" * 1001)
            check("1000" in text and "1001" in text and "small" in text, text)
            fails_quietly = daemon.gkvctl("-n", "small", "exist", "k", output=None, status=None)
            equal(fails_quietly.returncode, 3, "nothing was stored")
        daemon.gkvctl("-n", "small", "put", "k", output=None, stdin=b"x" * 1000)
        # An endless stream ends at the limit.
        with open("/dev/zero", "rb") as zero:
            done = subprocess.run([GKVCTL, "-s", daemon.socket, "-n", "small", "put", "z"],
                                  stdin=zero, capture_output=True, timeout=60 * gkvtest.SLOW,
                                  check=False)
        equal(done.returncode, 1, "exit status of an endless put")


@gkvtest.test
def put_options():
    with Daemon(config("mem")) as daemon:
        text = fails(daemon, 3, "put", "--must-exist", "k", stdin=b"1")
        check("KV Key Does Not Exist" in text and "0/87h" in text, text)
        daemon.gkvctl("put", "--must-not-exist", "k", output=None, stdin=b"2")
        text = fails(daemon, 1, "put", "k", "--must-not-exist", stdin=b"3")
        check("Key Exists" in text, text)
        equal(daemon.gkvctl("get", "k", output=None), b"2", "the old value")
        daemon.gkvctl("put", "--must-exist", "k", output=None, stdin=b"4")
        equal(daemon.gkvctl("get", "k", output=None), b"4", "the new value")
        told = daemon.gkvctl("put", "k", stdin=b"123456789")
        equal(told, {"key": "k", "hex": "6b", "bytes": 9, "crc32c": "e3069283"}, "report of put")


@gkvtest.test
def a_miss_is_exit_status_3_and_leaves_files_alone():
    with Daemon(config("mem")) as daemon:
        target = os.path.join(daemon.dir, "target")
        with open(target, "wb") as file:
            file.write(b"precious")
        fails(daemon, 3, "get", "nobody", target)
        with open(target, "rb") as file:
            equal(file.read(), b"precious", "the file")
        daemon.gkvctl("put", "a", output=None, stdin=b"")
        done = daemon.gkvctl("exist", "a", "nobody", status=3)
        equal([(one["key"], one["exists"]) for one in done], [("a", True), ("nobody", False)],
              "exist")
        equal(daemon.gkvctl("exist", "a", output=None), b"present a\n", "exist as text")
        daemon.gkvctl("del", "a", "nobody", output=None)
        daemon.gkvctl("features", "set", "kv", "1", output=None)
        equal(daemon.gkvctl("features", "get", "kv")["value"], 1, "Feature 20h")
        fails(daemon, 3, "del", "nobody")
        daemon.gkvctl("features", "set", "kv", "0", output=None)
        daemon.gkvctl("del", "nobody", output=None)


# Each of them is one key; their texts must come back through a shell.
ODD_KEYS = [b"plain", b"a/b", b".", b"..", b"-dash", b"hex:ab", b"hex:", b"with space",
            b"quote'\"", b"$HOME", b"\0", b"\0\0", b"nul\0nul", b"\xff" * 16,
            b"16-bytes-exactly", "\u00e9".encode(), b"new\nline", b"back\\slash", b"*",
            b"a" * 16, b"~"]


@gkvtest.test
def printed_keys_can_be_pasted_back():
    with Daemon(config("mem")) as daemon:
        for number, key in enumerate(ODD_KEYS):
            daemon.gkvctl("put", f"hex:{key.hex()}", output=None, stdin=str(number).encode())
        printed = daemon.gkvctl("list", output=None).decode().splitlines()
        equal(len(printed), len(ODD_KEYS), "keys listed")
        seen = set()
        for text in printed:
            # A shell must take the text for one word, and the same one.
            equal(shlex.split(text), [text], "the key as a word of a shell")
            equal(subprocess.run(["sh", "-c", f"printf %s {text}"], capture_output=True, check=True,
                                 cwd=daemon.dir).stdout.decode(), text, "the key in a shell")
            seen.add(int(daemon.gkvctl("get", text, output=None)))
        equal(seen, set(range(len(ODD_KEYS))), "values behind the printed keys")
        told = daemon.gkvctl("list")["keys"]
        equal({bytes.fromhex(one["hex"]) for one in told}, set(ODD_KEYS), "keys in JSON")
        bare = daemon.gkvctl("--key-format", "hex", "list", output=None).decode().split()
        equal({bytes.fromhex(one) for one in bare}, set(ODD_KEYS), "keys as hex")
        equal(daemon.gkvctl("--key-format", "text", "get", "--", "-dash", output=None),
              str(ODD_KEYS.index(b"-dash")).encode(), "a key as text")
        equal(daemon.gkvctl("--key-format", "text", "get", "hex:ab", output=None),
              str(ODD_KEYS.index(b"hex:ab")).encode(), "hex: as text")


@gkvtest.test
def bad_keys_are_usage_errors():
    with Daemon(config("mem")) as daemon:
        check("16" in fails(daemon, 2, "get", "a" * 17), "the limit is named")
        for key in ("", "hex:", "hex:0", "hex:0g", "hex:" + "00" * 17):
            fails(daemon, 2, "exist", key)
        fails(daemon, 2, "--key-format", "hex", "exist", "text")
        fails(daemon, 2, "list", "--limit", "x")
        fails(daemon, 2, "get")
        fails(daemon, 2, "get", "a", "b", "c")
        fails(daemon, 2, "features", "frob", "kv")
        fails(daemon, 1, "-n", "nowhere", "get", "a")


@gkvtest.test
def list_pages_start_prefix_and_limit():
    with Daemon(config("local")) as daemon:
        source = os.path.join(daemon.dir, "many")
        os.mkdir(source)
        names = [f"{prefix}{number:04}" for prefix in ("a.", "b.", "c.") for number in range(200)]
        for number, name in enumerate(names):
            with open(os.path.join(source, name), "wb") as file:
                file.write(b"x" * number)
        equal(daemon.gkvctl("put", "--dir", source, output=None), b"600 stored\n", "put --dir")
        everything = daemon.gkvctl("list", output=None).decode().split()
        equal(everything, names, "list")
        equal(daemon.gkvctl("list", "--prefix", "b.", output=None).decode().split(),
              [name for name in names if name.startswith("b.")], "prefix")
        equal(daemon.gkvctl("list", "--start", "b.0100", output=None).decode().split(),
              names[names.index("b.0100"):], "start at a key that exists")
        equal(daemon.gkvctl("list", "--start", "b.0100x", output=None).decode().split(),
              names[names.index("b.0101"):], "start at a missing key")
        told = daemon.gkvctl("list", "--limit", "7")
        equal([one["key"] for one in told["keys"]], names[:7], "limit")
        equal((told["count"], told["more"]), (7, True), "limit, in JSON")
        told = daemon.gkvctl("list", "--prefix", "c.", "--limit", "200", "--long")
        equal((told["count"], told["more"]), (200, False), "the last ones")
        equal([one["bytes"] for one in told["keys"]], list(range(400, 600)), "lengths")


@gkvtest.test
def get_all_and_put_dir_copy_a_namespace():
    with Daemon(config("mem")) as daemon:
        for number, key in enumerate(ODD_KEYS):
            daemon.gkvctl("put", f"hex:{key.hex()}", output=None,
                          stdin=random_bytes(number * 37, number))
        copy = os.path.join(daemon.dir, "copy")
        daemon.gkvctl("get", "--all", copy, output=None)
        equal(len(os.listdir(copy)), len(ODD_KEYS), "files")
        for key in ODD_KEYS:
            daemon.gkvctl("del", f"hex:{key.hex()}", output=None)
        equal(daemon.gkvctl("list")["count"], 0, "keys left")
        daemon.gkvctl("put", "--dir", copy, output=None)
        for number, key in enumerate(ODD_KEYS):
            equal(daemon.gkvctl("get", f"hex:{key.hex()}", output=None),
                  random_bytes(number * 37, number), f"value of {key!r}")


@gkvtest.test
def a_read_only_namespace_refuses_writing():
    with Daemon(config("mem")) as daemon:
        fails(daemon, 1, "-n", "frozen", "put", "a", stdin=b"x")
        equal(daemon.gkvctl("-n", "frozen", "list")["count"], 0, "keys")


@gkvtest.test
def reports_as_text_and_json():
    with Daemon(config("local")) as daemon:
        daemon.gkvctl("put", "k", output=None, stdin=b"x" * 5000)
        daemon.gkvctl("flush", output=None)
        status = daemon.gkvctl("status")
        equal(status["pid"], daemon.pid, "pid")
        equal(len(status["reactors"]), 2, "reactors")
        spaces = daemon.gkvctl("namespaces")
        equal([one["name"] for one in spaces], ["main", "small", "frozen"], "namespaces")
        local = next(one["store"] for one in spaces if "local" in one["stack"])
        equal((local["io"], local["buffered_ios"], local["values_bad"]), ("direct", 0, 0), "its store")
        equal(spaces[0]["keys"], 1, "keys")
        check(spaces[0]["used"] >= 5000, "used space")
        equal(spaces[0]["value_max"], VALUE_MAX, "value_max")
        check(isinstance(daemon.gkvctl("sessions"), list), "sessions")
        for report in ("status", "namespaces", "sessions", "settings"):
            text = daemon.gkvctl(report, output=None).decode()
            check("\t" not in text and len(text) > 20, f"text of {report}: {text!r}")
            equal(daemon.gkvctl("-q", report, output=None), b"", f"{report} with -q")
        check("local" in daemon.gkvctl("namespaces", output=None).decode(), "the stack is shown")
        lines = daemon.gkvctl("watch", "--count", "2", status=None).stdout.splitlines()
        equal(len(lines), 2, "lines of watch")
        for line in lines:
            check(isinstance(json.loads(line), dict), "a line of watch is JSON")


@gkvtest.test
def a_session_shows_its_regions_and_queue_pairs():
    with Daemon(config("mem")) as daemon:
        writer, reader = os.pipe()[::-1]
        # gkvctl waits for its standard input with the session open.
        holder = subprocess.Popen([GKVCTL, "-s", daemon.socket, "put", "k"], stdin=reader)
        os.close(reader)
        try:
            def found():
                return [one for one in daemon.gkvctl("sessions") if one["pid"] == holder.pid]
            session = gkvtest.wait_for(lambda: [one for one in found() if one["qps"]], 10,
                                       "the session with its queue pair")[0]
            equal(session["qps"][0]["depth"], 2, "depth")
            equal(session["uid"], os.geteuid(), "uid")
            text = daemon.gkvctl("sessions", output=None).decode()
            check(str(holder.pid) in text, "pid in the text")
        finally:
            os.close(writer)
            equal(holder.wait(60), 0, "exit status of put")
        gkvtest.wait_for(lambda: not found(), 10, "the session is gone")
        equal(daemon.gkvctl("get", "k", output=None), b"", "the empty value")


def put_in_two_steps(daemon, value, between):
    """A put whose session is open when between() runs, and whose Store comes after it."""
    done = subprocess.Popen([GKVCTL, "-s", daemon.socket, "put", "k"], stdin=subprocess.PIPE,
                            stderr=subprocess.PIPE)
    gkvtest.wait_for(lambda: [one for one in daemon.gkvctl("sessions")
                              if one["pid"] == done.pid and one["qps"]], 10, "the session")
    between()
    stderr = done.communicate(value, timeout=60 * gkvtest.SLOW)[1].decode()
    return done.returncode, stderr


@gkvtest.test
def a_put_survives_a_restart_of_the_daemon():
    with Daemon(config("local")) as daemon:
        def restart():
            daemon.kill9()
            daemon.start()
        equal(put_in_two_steps(daemon, b"value", restart), (0, ""), "put")
        equal(daemon.gkvctl("get", "k", output=None), b"value", "the value")


@gkvtest.test
def a_daemon_that_does_not_answer_is_told_in_bounded_time():
    text = config("mem").replace("[namespace main]", "[namespace main]\ndeadline = 1s")
    with Daemon(text) as daemon:
        start = time.monotonic()

        def stopped():
            states = []
            for task in os.listdir(f"/proc/{daemon.pid}/task"):
                with open(f"/proc/{daemon.pid}/task/{task}/stat", encoding="ascii") as file:
                    states.append(file.read().rpartition(")")[2].split()[0])
            return set(states) == {"T"}

        def stop():
            os.kill(daemon.pid, signal.SIGSTOP)
            # On a busy machine its threads go on for a moment.
            gkvtest.wait_for(stopped, 10, "every thread stands still")
        # Without a buffer to register, the Store itself is the first to be left alone.
        status, message = put_in_two_steps(daemon, b"", stop)
        took = time.monotonic() - start
        os.kill(daemon.pid, signal.SIGCONT)
        equal(status, 1, "exit status")
        check("no answer in time" in message and "1 s" in message, message)
        check(took < 20 * gkvtest.SLOW, f"it took {took:.1f} s")


@gkvtest.test
def settings_with_origin():
    with Daemon(config("mem")) as daemon:
        settings = {one["name"]: one for one in daemon.gkvctl("settings")}
        equal(settings["reactors"]["origin"], "file", "origin of reactors")
        equal(settings["poll_interval_ns"]["origin"], "default", "origin of poll_interval_ns")
        told = daemon.gkvctl("set", "poll_interval_ns", "123456")
        equal((told["value"], told["origin"]), (123456, "live"), "after set")
        equal(daemon.gkvctl("get-setting", "poll_interval_ns", output=None), b"123456\n",
              "get-setting")
        check("nonsense" in fails(daemon, 1, "set", "nonsense", "1"), "the name is in the message")
        text = fails(daemon, 1, "set", "poll_interval_ns", "1")
        check(str(settings["poll_interval_ns"]["min"]) in text, f"the limit is told: {text}")
        fails(daemon, 1, "set", "reactors", "1")
        fails(daemon, 1, "get-setting", "nonsense")
        equal(daemon.gkvctl("get-setting", "poll_interval_ns")["value"], 123456,
              "unchanged by refusals")


@gkvtest.test
def admin_structures():
    with Daemon(config("mem")) as daemon:
        ctrl = daemon.gkvctl("identify")
        equal((ctrl["sqes"], ctrl["cqes"]), (0x66, 0x44), "entry sizes")
        space = daemon.gkvctl("identify", "ns")
        form = space["formats"][0]
        equal((form["key_max"], form["value_max"]), (16, VALUE_MAX), "KV format")
        form = daemon.gkvctl("-n", "small", "identify", "5")["formats"][0]
        equal(form["value_max"], 1000, "structure by number")
        equal(daemon.gkvctl("identify", "active")["nsids"], [1, 2, 3], "active namespaces")
        equal(daemon.gkvctl("identify", "kv-active")["nsids"], [1, 2, 3], "active KV namespaces")
        descs = daemon.gkvctl("identify", "descs")
        equal(descs["csi"], "01", "command set")
        uuid = daemon.gkvctl("namespaces")[0]["uuid"].replace("-", "")
        equal(descs["uuid"], uuid, "UUID of the namespace")
        equal(daemon.gkvctl("identify", "indep-ns")["nstat"] & 1, 1, "ready")
        check(daemon.gkvctl("identify", "iocs")["combinations"][0] & 2, "KV command set")
        raw = daemon.gkvctl("identify", "--raw", output=None)
        equal((len(raw), raw[512], raw[513]), (4096, 0x66, 0x44), "raw bytes")
        for what in ("ctrl", "ns", "nvm-ns", "active", "descs", "kv-ctrl", "kv-active", "indep-ns",
                     "iocs"):
            check(len(daemon.gkvctl("identify", what, output=None)) > 5, f"text of {what}")
        text = fails(daemon, 1, "identify", "ns", "--csi", "0")
        check("1/2ch" in text, f"the status is told: {text}")
        for page in ("error", "smart", "firmware", "effects"):
            check(isinstance(daemon.gkvctl("log", page), dict), f"log {page}")
            daemon.gkvctl("log", page, output=None)
        opcodes = {one["opcode"] for one in daemon.gkvctl("log", "effects")["io"]}
        check({0x00, 0x01, 0x02, 0x06, 0x10, 0x14} <= opcodes, f"supported commands: {opcodes}")
        equal(len(daemon.gkvctl("log", "smart", "--raw", output=None)), 512, "raw SMART log")
        text = fails(daemon, 2, "log", "0x7f")
        check("--raw" in text, text)
        check("1/09h" in fails(daemon, 1, "log", "0x7f", "--raw"), "an unknown log page")


@gkvtest.test
def without_a_daemon_the_socket_is_named():
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "no.sock")
        for args in (["status"], ["get", "a"], ["identify"]):
            done = subprocess.run([GKVCTL, "-s", path, *args], capture_output=True, timeout=60,
                                  check=False)
            equal(done.returncode, 1, "exit status")
            text = done.stderr.decode()
            check(path in text and "kvbridged" in text, repr(text))
            equal(done.stderr.count(b"\n"), 1, "lines on stderr")
        done = subprocess.run([GKVCTL, "status"], capture_output=True, timeout=60, check=False,
                              env=dict(os.environ, GKV_SOCKET=path))
        check(path in done.stderr.decode(), "the environment variable counts")


def alone(*args, status, drop=()):
    """Runs gkvctl without a daemon and without the named capabilities; its output, and stderr."""
    libc = ctypes.CDLL(None)

    def lose():
        for cap in drop:
            libc.prctl(24, cap, 0, 0, 0)  # PR_CAPBSET_DROP

    done = subprocess.run([GKVCTL, "-s", "/nonexistent", *args], capture_output=True, check=False,
                          timeout=60 * gkvtest.SLOW, preexec_fn=lose)
    text = done.stderr.decode()
    equal(done.returncode, status, f"exit status of {args} ({text!r})")
    equal(text.count("\n"), 1 if status else 0, f"lines on stderr of {args}: {text!r}")
    return done.stdout.decode(), text


CAP_SYS_MODULE = 16


@gkvtest.test
def arguments_about_the_module_are_checked_before_it_is_looked_for():
    for args in (["module", "frob"], ["module", "status", "x"], ["module", "unload", "x"],
                 ["module", "load", "carveout_bar"], ["module", "load", "=2"],
                 ["module", "load", "a=b c=d"], ["module", "--file", "x", "status"],
                 ["module", "load", "--file", __file__], ["module", "set"],
                 ["module", "set", "max_queue_depth"], ["module", "set", "nonsense", "1"],
                 ["module", "set", "max_queue_depth", "1x"],
                 ["module", "set", "max_queue_depth", "-1"],
                 ["module", "set", "max_user_bytes", "18446744073709551616"],
                 ["provider", "frob"], ["provider", "add"], ["provider", "del", "0"],
                 ["provider", "add", "03:00", "0", "0", "2m"],
                 ["provider", "add", "0x3:00.0", "0", "0", "2m"],
                 ["provider", "add", "0000:03:20.0", "0", "0", "2m"],
                 ["provider", "add", "0000:03:00.8", "0", "0", "2m"],
                 ["provider", "add", "0000:03:00.0", "6", "0", "2m"],
                 ["provider", "add", "0000:03:00.0", "0", "x", "2m"],
                 ["provider", "add", "0000:03:00.0", "0", "0", "0"],
                 ["region", "--pid", "0"], ["region", "--pid", "x"], ["region", "x"]):
        out, _ = alone(*args, status=2, drop=[CAP_SYS_MODULE])
        equal(out, "", f"output of {args}")


@gkvtest.test
def without_the_module_it_is_said_what_is_missing():
    if os.path.exists("/sys/module/gkvdrv"):
        raise gkvtest.Skip("gkvdrv is loaded here; the VM tests cover that")
    out, text = alone("-o", "json", "module", status=1)
    told = json.loads(out)
    equal((told["module"], told["state"], told["loaded"]), ("gkvdrv", "not loaded", None), "state")
    equal(told["kernel"], os.uname().release, "kernel")
    check(told["error"] in text and "not loaded" in text, text)
    out, _ = alone("module", "status", status=1)
    check(out.startswith("module") and "not loaded" in out, out)
    equal(alone("-q", "module", status=1)[0], "", "output with -q")
    _, text = alone("module", "unload", status=1)
    check("not loaded" in text, text)
    pid = str(os.getpid())
    for args in (["provider"], ["provider", "add", "0000:03:00.0", "0", "0", "2m"],
                 ["provider", "del", "1"], ["module", "set", "max_queue_depth", "8"],
                 ["region", "--pid", pid], ["region", "--probe", "/dev/null"]):
        for output in ("text", "json"):
            out, text = alone("-o", output, *args, status=1)
            equal(out, "", f"output of {args}")
            check("gkvdrv" in text and "gkvctl module load" in text, f"{args}: {text}")


@gkvtest.test
def a_module_that_cannot_be_loaded_is_explained():
    if os.path.exists("/sys/module/gkvdrv"):
        raise gkvtest.Skip("gkvdrv is loaded here; the VM tests cover that")
    # Never with the right to load one: this may be anybody's machine.
    _, text = alone("module", "load", status=1, drop=[CAP_SYS_MODULE])
    known = ("CAP_SYS_MODULE", "without loadable modules", "docs/kernel.md", "modules.dep is missing")
    check(any(word in text for word in known), text)
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "gkvdrv.ko")
        _, text = alone("module", "load", "--file", path, status=1)
        check("No such file" in text and path in text, text)
        with open(path, "wb") as file:
            file.write(random_bytes(5000, 1))
        _, text = alone("module", "load", "--file", path, status=1, drop=[CAP_SYS_MODULE])
        check("takes root (CAP_SYS_MODULE)" in text or "without loadable modules" in text, text)
        _, text = alone("module", "load", "--file", path, "nonsense=1", status=2,
                        drop=[CAP_SYS_MODULE])
        check("nonsense" in text, text)


@gkvtest.test
def region_shows_where_the_memory_of_sessions_lies():
    with Daemon(config("mem")) as daemon:
        text = daemon.gkvctl("region", output=None).decode()
        check(text.startswith("no session"), text)
        writer, reader = os.pipe()[::-1]
        holder = subprocess.Popen([GKVCTL, "-s", daemon.socket, "put", "k"], stdin=reader)
        os.close(reader)
        try:
            def found():
                return [one for one in daemon.gkvctl("region")
                        if one["pid"] == holder.pid and one["qps"]]
            session = gkvtest.wait_for(found, 10, "the session with its queue pair")[0]
            queue = session["qps"][0]
            equal((queue["qid"], queue["mode"]), (1, 0), "queue pair and memory mode")
            check({"sq", "cq"} <= set(queue["placement"]), f"placement: {queue['placement']}")
            lines = daemon.gkvctl("region", output=None).decode().splitlines()
            for part in queue["placement"]:
                row = [line for line in lines if f" {part} " in line and "queue pair" in line]
                equal(len(row), 1, f"rows of {part} in {lines}")
                check(str(holder.pid) in row[0], row[0])
            equal(daemon.gkvctl("-q", "region", output=None), b"", "region with -q")
        finally:
            os.close(writer)
            equal(holder.wait(60), 0, "exit status of put")


@gkvtest.test
def output_that_cannot_be_written_is_a_failure():
    if not os.path.exists("/dev/full"):
        raise gkvtest.Skip("no /dev/full")
    with Daemon(config("mem")) as daemon:
        daemon.gkvctl("put", "k", output=None, stdin=b"x" * 10)
        for args in (["list"], ["get", "k"], ["status"]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([GKVCTL, "-s", daemon.socket, *args], stdout=full,
                                      stderr=subprocess.PIPE, timeout=60, check=False)
            equal(done.returncode, 1, f"exit status of {args}")


@gkvtest.test
def progress_on_a_terminal_only():
    with Daemon(config("mem")) as daemon:
        for tty, quiet in ((True, False), (True, True), (False, False)):
            args = [GKVCTL, "-s", daemon.socket, *(["-q"] if quiet else []), "put", "k"]
            main, side = pty.openpty()
            process = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                       stderr=side if tty else subprocess.PIPE)
            os.close(side)
            for _ in range(16):
                process.stdin.write(b"x" * 65536)
                process.stdin.flush()
                time.sleep(0.1)
            process.stdin.close()
            shown = b"" if tty else process.stderr.read()
            equal(process.wait(60), 0, "exit status")
            while tty:
                try:
                    piece = os.read(main, 65536)
                except OSError:
                    break
                if not piece:
                    break
                shown += piece
            os.close(main)
            if tty and not quiet:
                check(b"reading" in shown and b"/s" in shown, f"progress on a terminal: {shown!r}")
            else:
                equal(shown, b"", "progress")


@gkvtest.test
def help_of_every_command():
    text = subprocess.run([GKVCTL, "--help"], capture_output=True, check=True).stdout.decode()
    listed = text.split("Commands:\n")[1].split("\n\n")[0]
    commands = [line.split()[0] for line in listed.splitlines()]
    check(len(commands) == 19, f"commands: {commands}")
    for command in commands:
        done = subprocess.run([GKVCTL, command, "--help"], capture_output=True, check=False)
        equal((done.returncode, done.stderr), (0, b""), f"{command} --help")
        check(done.stdout.startswith(b"Usage: gkvctl [OPTION...] " + command.encode()), command)
    version = subprocess.run([GKVCTL, "--version"], capture_output=True, check=True).stdout
    check(version.startswith(b"gkvctl "), "version")


gkvtest.main()
