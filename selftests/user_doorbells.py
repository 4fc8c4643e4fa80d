#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Doorbells of a session lie in one line of VRAM, which the daemon reads at once: each queue pair
runs what was submitted to it, while a neighbour loses its memory, is reset, comes and goes."""
import os
from ctypes import byref, c_void_p, sizeof

import gkvtest
import guest
from gkvlib import (Comp, EXIST, KEY_NOT_FOUND, LIB, MODE_CQ, MODE_DB, MODE_SQ, QpOpts, STOPPED_MEMORY,
                    Session, ok)

LINE, COUNT = 64, 8


def descriptors(daemon):
    """{descriptor: where its doorbells are in the BAR} of this process's queue pairs, as the module
    tells; and its regions, by where their first byte is."""
    queues, regions = {}, {}
    for one in daemon.gkvctl("region", "--pid", os.getpid())["descriptors"]:
        parts = {part["part"]: part.get("bar_offset") for part in one["parts"]}
        if one["kind"] == "queue pair":
            queues[one["fd"]] = parts["db"]
        else:
            regions[parts["data"]] = one["fd"]
    return queues, regions


class Queues:
    """Queue pairs of a session, the session's own first."""

    def __init__(self, daemon, session, mode):
        self.daemon, self.session, self.mode = daemon, session, mode
        self.all, self.fds = [session.qp], list(descriptors(daemon)[0])
        for _ in range(COUNT - 1):
            self.add()

    def add(self):
        queue, opts = c_void_p(), QpOpts(sizeof(QpOpts), 4, mode=self.mode)
        ok(LIB.gkv_qp_create(self.session.handle, byref(opts), byref(queue)))
        self.all.append(queue)
        self.fds += [fd for fd in descriptors(self.daemon)[0] if fd not in self.fds]
        return queue

    def works(self, queue, times=1):
        """Around the ring of four, so that what is found there is old."""
        for _ in range(times):
            done = Comp()
            ok(LIB.gkv_exec(queue, byref(self.session.cmd(EXIST, b"nothing")), byref(done)))
            gkvtest.equal((done.status & 0x7ff, done.flags), (KEY_NOT_FOUND, 0), "status and flags")

    def fetched(self):
        """[commands], as the daemon counts them, in the order of the queue pairs' numbers."""
        told = [one for one in self.daemon.gkvctl("sessions") if one["pid"] == os.getpid()][0]
        return [(one["qid"], one["counters"]["fetched"], one["state"])
                for one in sorted(told["qps"], key=lambda one: one["qid"])]


def in_a_line(mode):
    with gkvtest.Daemon(guest.CONFIG) as daemon, Session(daemon, depth=4, mode=mode) as s:
        queues = Queues(daemon, s, mode)
        told, regions = descriptors(daemon)
        gkvtest.equal(len({at // LINE for at in told.values()}), 1, f"lines: {told}")
        gkvtest.equal(len(set(told.values())), COUNT, f"places: {told}")
        for i, queue in enumerate(queues.all):
            queues.works(queue, 5 + i)
        victim, lost = queues.all[3], queues.fds[3]
        guest.revoke(lost)
        gkvtest.wait_for(lambda: LIB.gkv_qp_stopped(victim) == STOPPED_MEMORY, 10,
                         "the queue pair is stopped")
        for i, queue in enumerate(queues.all):
            if queue is not victim:
                queues.works(queue, 5 + i)
        gkvtest.equal(queues.fetched(),
                      [(i + 1, 5 + i if i == 3 else 2 * (5 + i), "error" if i == 3 else "running")
                       for i in range(COUNT)], "commands that the daemon found")
        # A reset, one that goes and one that comes.
        ok(LIB.gkv_qp_reset(queues.all[0]))
        ok(LIB.gkv_qp_destroy(victim))
        queues.works(queues.add(), 5)
        for queue in queues.all:
            if queue is not victim:
                gkvtest.equal(LIB.gkv_qp_stopped(queue), 0, "nobody else is stopped")
                queues.works(queue, 3)
        # The whole page goes; there are others.
        page = [fd for at, fd in regions.items() if at // 4096 == told[lost] // 4096]
        guest.revoke(page[0])
        for queue in queues.all:
            if queue is not victim:
                gkvtest.wait_for(lambda q=queue: LIB.gkv_qp_stopped(q) == STOPPED_MEMORY, 10,
                                 "all are stopped")
        queues.works(queues.add(), 9)
        daemon.check_alive()


for each in (MODE_DB, MODE_SQ | MODE_CQ | MODE_DB):
    def test(mode=each):
        guest.need_vram()
        in_a_line(mode)
    gkvtest.named(guest.mode_name(each))(test)

gkvtest.main()
