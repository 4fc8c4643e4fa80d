#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""F117: a namespace that holds values but where nobody ever finds one is pointed out."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import gkvtest  # noqa: E402
from gkvtest import Daemon, check, equal  # noqa: E402

CONFIG = """
[daemon]
reactors = 2
[namespace kv0]
nsid = 1
stack = mem
[namespace kv1]
nsid = 2
stack = mem
"""

COLD = 10000		# look-ups in a row that are worth a warning
WARNING = "kv0 is not empty, but the last"


def counters(daemon, name="kv0"):
    found = [ns for ns in daemon.gkvctl("namespaces") if ns["name"] == name]
    return found[0]["counters"], found[0].get("warning")


def miss(daemon, times):
    for at in range(0, times, 2500):
        keys = [f"no{n}" for n in range(at, min(at + 2500, times))]
        done = daemon.gkvctl("exist", *keys, output=None, status=None)
        equal(done.returncode, 3, "exit status of exist")


def quiet(daemon):
    check("warnings" not in daemon.gkvctl("status"), "no warning in the status")
    check(counters(daemon)[1] is None, "no warning in the namespace")
    check(WARNING not in daemon.log(), daemon.log())


@gkvtest.named("F117: hits and misses are counted")
def counted():
    with Daemon(CONFIG) as daemon:
        equal(counters(daemon), ({"hits": 0, "misses": 0, "misses_in_a_row": 0}, None), "at first")
        daemon.gkvctl("put", "k", output=None, stdin=b"value")
        miss(daemon, 3)
        equal(counters(daemon)[0], {"hits": 0, "misses": 3, "misses_in_a_row": 3}, "misses")
        daemon.gkvctl("exist", "k", output=None)
        daemon.gkvctl("exist", "k", output=None)
        got = counters(daemon)[0]
        equal((got["hits"], got["misses"], got["misses_in_a_row"]), (2, 3, 0), "after hits")
        # Neither is a look-up.
        daemon.gkvctl("del", "k", output=None)
        daemon.gkvctl("list", output=None)
        equal(counters(daemon)[0]["hits"], 2, "hits")
        equal(counters(daemon, "kv1")[0]["misses"], 0, "misses of another namespace")


@gkvtest.named("F117: a store that is never hit is named, in the log and by gkvctl")
def warned():
    with Daemon(CONFIG) as daemon:
        daemon.gkvctl("put", "k", output=None, stdin=b"value")
        miss(daemon, COLD - 1)
        quiet(daemon)
        miss(daemon, 1)
        status = daemon.gkvctl("status")
        equal(len(status["warnings"]), 1, "warnings")
        check(WARNING in status["warnings"][0] and str(COLD) in status["warnings"][0], f"{status}")
        check(WARNING in counters(daemon)[1], "the namespace has a warning")
        for command in ("status", "namespaces"):
            text = daemon.gkvctl(command, output=None).decode()
            check("warning: namespace " + WARNING in text, text)

        def logged():
            daemon.gkvctl("status")	# the daemon looks when something happens
            return WARNING in daemon.log()
        gkvtest.wait_for(logged, 15, "the warning is in the log")
        miss(daemon, 2500)
        equal(daemon.log().count(WARNING), 1, "lines in the log")
        # One hit, and all is well.
        daemon.gkvctl("exist", "k", output=None)
        check("warnings" not in daemon.gkvctl("status"), "no warning after a hit")


@gkvtest.named("F117: where there is nothing to be found, nothing is said")
def nothing_there():
    with Daemon(CONFIG) as daemon:
        miss(daemon, COLD + 1)
        quiet(daemon)
        daemon.gkvctl("put", "k", output=None, stdin=b"value")
        equal(counters(daemon)[0]["misses_in_a_row"], 0, "misses while it was empty")
        quiet(daemon)


gkvtest.main()
