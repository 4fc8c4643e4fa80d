#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs test programs and fuzzers and adds up their results.

Every test program speaks TAP on stdout ("ok N - name", "not ok N - name",
"ok N - name # SKIP reason"); cmocka programs do so when asked. Results are
appended, one JSON object a line, to a file that `summary` adds up.

A program that exits non-zero without a "not ok", is killed by a signal, runs
into its time limit or reports fewer tests than its plan counts as a failure.

A line "# note: TEXT" of a test is shown, and once more at the end.

A test may say in its first ten lines (of its source, for a C program):
    gkv-san: no REASON      leave it out of sanitizer runs; counted as skipped
    gkv-timeout: SECONDS    its time limit instead of the suite's
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TAP_LINE = re.compile(r"^(not )?ok\b\s*(\d+)?\s*(?:-\s*)?(.*)$")
TAP_SKIP = re.compile(r"#\s*SKIP\S*\s*(.*)$", re.IGNORECASE)
TAP_PLAN = re.compile(r"^1\.\.(\d+)(?:\s*#\s*SKIP\S*\s*(.*))?$", re.IGNORECASE)

# So many lines of what a failed test printed are shown once more at the end.
DETAIL_LINES = 20

# Sanitizers slow programs down by these factors; time limits follow.
SLOWDOWN = {"": 1, "address": 3, "thread": 6}


class Results:
    """Appends results to the file and prints them as they come."""

    def __init__(self, path, suite):
        self.file = open(path, "a", encoding="utf-8")
        self.suite = suite

    def add(self, program, name, status, reason="", detail=()):
        self.file.write(json.dumps({"suite": self.suite, "program": program, "name": name,
                                    "status": status, "reason": reason,
                                    "detail": detail}) + "\n")
        self.file.flush()
        tail = f" ({reason})" if reason else ""
        print(f"{status.upper():4} {self.suite}/{program}: {name}{tail}", flush=True)


def directives(program, build):
    """The gkv-* lines at the head of a script, or of a C program's source."""
    source = program
    if program.startswith(build + os.sep):
        source = os.path.relpath(program, build) + ".c"
    found = {}
    try:
        with open(source, encoding="utf-8", errors="replace") as file:
            for _, line in zip(range(10), file):
                match = re.search(r"gkv-(san|timeout):\s*(.*?)\s*(?:\*/)?$", line)
                if match:
                    found[match.group(1)] = match.group(2)
    except OSError:
        pass
    return found


def sanitizer_environment(san):
    """Options under which a report of any sanitizer ends the program with a failure."""
    env = {
        "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1:exitcode=66",
    }
    for tool, name in (("TSAN_OPTIONS", "tsan.supp"), ("LSAN_OPTIONS", "lsan.supp")):
        path = os.path.join("tests/lib", name)
        if os.path.exists(path):
            extra = "suppressions=" + os.path.abspath(path)
            env[tool] = env[tool] + ":" + extra if tool in env else extra
    return env if san else {}


def launcher(san):
    """TSan cannot place its shadow memory under strong address randomisation."""
    if san == "thread" and shutil.which("setarch"):
        prefix = ["setarch", os.uname().machine, "-R"]
        if subprocess.run(prefix + ["true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return prefix
    return []


def end_group(process):
    """Ends what a test left behind: the test leads its own process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run_limited(command, env, limit, output):
    """Runs command; returns (exit status, or None after the time limit, and the seconds)."""
    start = time.monotonic()
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=output,
                               stderr=subprocess.STDOUT, start_new_session=True)
    try:
        status = process.wait(limit)
    except subprocess.TimeoutExpired:
        status = None
    except BaseException:
        end_group(process)
        raise
    end_group(process)
    process.wait()
    return status, time.monotonic() - start


def describe(status):
    if status is not None and status < 0:
        return "killed by " + signal.Signals(-status).name
    return f"exit status {status}"


def parse_tap(text):
    """Returns (list of (name, status, reason, detail), planned count or None, skip-all reason)."""
    tests, plan, skip_all = [], None, None
    said = ""
    detail = []
    for line in text.splitlines():
        match = TAP_PLAN.match(line)
        if match:
            # cmocka prints a plan for each group.
            plan = (plan or 0) + int(match.group(1))
            if match.group(1) == "0" and match.group(2) is not None:
                skip_all = match.group(2) or "no reason given"
            continue
        match = TAP_LINE.match(line)
        if not match:
            said = line.strip("# \t") or said
            if len(detail) < DETAIL_LINES:
                detail.append(line)
            continue
        # What a test says of its failure stands behind its line.
        detail = []
        name = match.group(3).strip()
        skip = TAP_SKIP.search(name)
        if skip:
            # cmocka writes "not ok 2 # SKIP name"; the reason is what the test printed before.
            before = name[:skip.start()].strip(" -")
            name, reason = (before, skip.group(1)) if before else (skip.group(1), said)
            tests.append((name, "skip", reason, ()))
        else:
            tests.append((name, "fail", "", detail) if match.group(1) else (name, "pass", "", ()))
        said = ""
    return tests, plan, skip_all


def run_program(program, args, results):
    name = os.path.basename(program)
    known = directives(program, args.build)
    if args.san and known.get("san", "").split(" ")[0] == "no":
        reason = known["san"][2:].strip() or "declares that it does not suit sanitizers"
        results.add(name, "all", "skip", reason)
        return
    limit = int(known.get("timeout", args.timeout)) * SLOWDOWN[args.san]
    if os.environ.get("GKV_LONG"):
        limit *= 20
    env = dict(os.environ, GKV_BUILD=os.path.abspath(args.build), GKV_SAN=args.san,
               CMOCKA_MESSAGE_OUTPUT="TAP", PYTHONDONTWRITEBYTECODE="1",
               PYTHONPATH=os.path.abspath("tests/lib"), **sanitizer_environment(args.san))
    # Scripts by their interpreter: whether they are executable is no property of the test.
    interpreter = {".py": ["python3"], ".sh": ["bash"]}.get(os.path.splitext(program)[1], [])
    command = launcher(args.san) + interpreter + [os.path.abspath(program)]
    log_dir = os.path.join(args.build, "logs")
    os.makedirs(log_dir, exist_ok=True)
    log_path = os.path.join(log_dir, f"{results.suite}-{name}.log")
    with open(log_path, "wb") as log:
        status, seconds = run_limited(command, env, limit, log)
    with open(log_path, encoding="utf-8", errors="replace") as log:
        text = log.read()
    tests, plan, skip_all = parse_tap(text)
    # A skip without a reason is a check that silently does not happen.
    tests = [(test, "fail", "skipped without a reason", ()) if how == "skip" and not why else
             (test, how, why, detail) for test, how, why, detail in tests]
    failures = sum(how == "fail" for _, how, _, _ in tests)
    for line in text.splitlines():
        if line.startswith("# note: "):
            results.add(name, line.removeprefix("# note: "), "note")
    for test in tests:
        results.add(name, *test)
    if skip_all is not None and not tests:
        results.add(name, "all", "skip", skip_all)

    problem = None
    if status is None:
        problem = f"ran into its limit of {limit} s"
    elif status < 0 or (status != 0 and not failures):
        problem = describe(status)
    elif plan is not None and len(tests) < plan:
        problem = f"reported {len(tests)} of {plan} tests"
    elif not tests and skip_all is None:
        problem = "reported no test"
    if problem:
        results.add(name, "program", "fail", problem)
    if problem or failures:
        show_log(log_path, text)
    print(f"     {results.suite}/{name}: {seconds:.1f} s", flush=True)


def show_log(path, text):
    lines = text.splitlines()
    print(f"---- {path}, last {min(len(lines), 80)} of {len(lines)} lines")
    print("\n".join(lines[-80:]))
    print("----", flush=True)


def command_run(args):
    results = Results(args.results, args.suite)
    for program in args.programs:
        run_program(program, args, results)


def fuzz_one(program, args, results):
    """Fuzzes for a fixed time on a copy of the corpus, so that the tree stays as it is."""
    name = os.path.basename(program)
    short = name.removeprefix("fuzz_")
    work = tempfile.mkdtemp(prefix=name + ".", dir=os.path.join(args.build))
    live = os.path.join(work, "corpus")
    os.mkdir(live)
    for corpus in (name, short):
        source = os.path.join("tests/fuzz/corpus", corpus)
        if os.path.isdir(source):
            shutil.copytree(source, live, dirs_exist_ok=True)
    seeds = sum(len(files) for _, _, files in os.walk(live))
    seconds = int(os.environ.get("GKV_FUZZ_SECONDS") or
                  (3600 if os.environ.get("GKV_LONG") else 60))
    command = [os.path.abspath(program), f"-max_total_time={seconds}", "-timeout=20",
               "-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=1"]
    for dictionary in (f"tests/fuzz/{name}.dict", f"tests/fuzz/{short}.dict"):
        if os.path.exists(dictionary):
            command.append("-dict=" + os.path.abspath(dictionary))
    command += [f"-artifact_prefix={os.path.abspath(work)}/", live]
    env = dict(os.environ, GKV_BUILD=os.path.abspath(args.build),
               **sanitizer_environment("address"))
    log_path = os.path.join(work, "log")
    with open(log_path, "wb") as log:
        status, _ = run_limited(command, env, seconds + 120, log)
    with open(log_path, encoding="utf-8", errors="replace") as log:
        text = log.read()
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", text)
    count = int(runs.group(1)) if runs else 0
    if status == 0 and count > 0:
        results.add(name, f"{count} inputs from {seeds} seeds in {seconds} s", "pass")
        shutil.rmtree(work)
    else:
        why = "ran into its time limit" if status is None else describe(status)
        results.add(name, f"{seeds} seeds", "fail", f"{why}; input and log in {work}")
        show_log(log_path, text)


def command_fuzz(args):
    results = Results(args.results, args.suite)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for future in [pool.submit(fuzz_one, program, args, results)
                       for program in args.programs]:
            future.result()


def command_fail(args):
    Results(args.results, args.suite).add("suite", "all", "fail", args.reason)


def command_summary(args):
    """Lists what failed and was skipped, ends with the total; fails on any failure."""
    results = []
    if os.path.exists(args.results):
        with open(args.results, encoding="utf-8") as file:
            results = [json.loads(line) for line in file]
    chosen = {status: [r for r in results if r["status"] == status]
              for status in ("pass", "fail", "skip", "note")}
    for status, title in (("skip", "Skipped:"), ("note", "Notes:"), ("fail", "Failed:")):
        if chosen[status]:
            print("\n" + title)
        for r in chosen[status]:
            tail = f" ({r['reason']})" if r["reason"] else ""
            print(f"  {r['suite']}/{r['program']}: {r['name']}{tail}")
            for line in r["detail"]:
                print(f"      {line}")
    print(f"\n{len(chosen['pass'])} passed, {len(chosen['fail'])} failed, "
          f"{len(chosen['skip'])} skipped")
    if chosen["fail"] or not chosen["pass"]:
        sys.exit(1)


def main():
    # As an interrupt does: the test under way ends with us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name, function):
        sub = commands.add_parser(name)
        sub.set_defaults(function=function)
        sub.add_argument("--results", required=True)
        return sub

    sub = command("run", command_run)
    sub.add_argument("--suite", required=True)
    sub.add_argument("--build", default="build")
    sub.add_argument("--san", default="", choices=sorted(SLOWDOWN))
    sub.add_argument("--timeout", type=int, default=300)
    sub.add_argument("programs", nargs="*")
    sub = command("fuzz", command_fuzz)
    sub.add_argument("--suite", default="fuzz")
    sub.add_argument("--build", default="build/san-fuzz")
    sub.add_argument("--jobs", type=int, default=2)
    sub.add_argument("programs", nargs="*")
    sub = command("fail", command_fail)
    sub.add_argument("--suite", required=True)
    sub.add_argument("reason")
    command("summary", command_summary)
    args = parser.parse_args()
    args.function(args)


if __name__ == "__main__":
    main()
