#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""VRAM goes while commands use it: the client is told and can go on, others notice nothing, and
kvbridged lives. A daemon that is killed leaves queues in VRAM to its successor."""
import array
import json
import os
import select
import signal
import socket
import time
import traceback
from ctypes import byref, c_void_p

import gkvtest
import guest
from gkvlib import Cmd, Comp, LIB, MODE_DATA, RETRIEVE, STORE, Session, ok

MEMORY = 1 << 20
VALUE = 256 << 10


def step(session, key):
    """One Store, one Retrieve; what went wrong, or None."""
    for opcode in (STORE, RETRIEVE):
        done = Comp()
        code = LIB.gkv_exec(session.qp, byref(session.cmd(opcode, key, VALUE)), byref(done))
        if code or done.status or done.flags:
            return {"code": code, "status": done.status & 0x7ff, "flags": done.flags,
                    "stopped": LIB.gkv_qp_stopped(session.qp)}
        if opcode == RETRIEVE and done.result != VALUE:
            return {"code": 0, "status": 0, "result": done.result}
    return None


class Client:
    """A process with a session that stores and retrieves until it is told to stop, or cannot."""

    def __init__(self, daemon, mode, key):
        self.conn, theirs = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            code = 1
            try:
                self.conn.close()
                self.work(daemon, mode, key, theirs)
                code = 0
            except BaseException:  # pylint: disable=broad-except
                traceback.print_exc()
            finally:
                os._exit(code)
        theirs.close()
        self.conn.settimeout(120)
        word, fds, _, _ = socket.recv_fds(self.conn, 1, 1)
        gkvtest.equal(word, b"r", "the client is under way")
        self.fd = fds[0]  # of its memory

    @staticmethod
    def work(daemon, mode, key, conn):
        session = Session(daemon, namespace="raw", length=MEMORY, mode=mode)
        fd = LIB.gkv_mem_fd(session.mem)
        count, failure, asked = 0, None, False
        # One more after it is asked to end: that tells what has become of the session.
        while failure is None and not asked:
            asked = count >= 3 and bool(select.select([conn], [], [], 0)[0])
            failure = step(session, key)
            count += 1
            if count == 3:
                conn.sendmsg([b"r"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                       array.array("i", [fd]))])
        told = {"count": count, "failure": failure, "gone": False, "again": None,
                "reconnects": LIB.gkv_reconnects(session.handle)}
        poll = select.poll()
        poll.register(fd, 0)
        told["gone"] = bool(poll.poll(5000 if failure else 0))
        # With other memory the session is as good as before.
        if failure:
            memory = c_void_p()
            if LIB.gkv_mem_alloc_vram(session.handle, 0, MEMORY, byref(memory)) == 0:
                session.addr = LIB.gkv_mem_addr(memory)
                told["again"] = step(session, key) or "well"
        conn.recv(1)
        conn.sendall(json.dumps(told).encode())
        LIB.gkv_close(session.handle)

    def end(self):
        """What it tells at its end; the signal that ended it instead."""
        try:
            self.conn.sendall(b"e")
            text = self.conn.recv(4096)
        except (BrokenPipeError, ConnectionResetError):
            text = b""
        _, status = os.waitpid(self.pid, 0)
        self.conn.close()
        os.close(self.fd)
        if os.WIFSIGNALED(status):
            return {"signal": os.WTERMSIG(status)}
        gkvtest.equal(status, 0, f"status of the client, which said {text!r}")
        return json.loads(text)


def unharmed(*clients):
    for client in clients:
        told = client.end()
        gkvtest.equal(told.get("failure", told), None, "failure of a client that has lost nothing")
        gkvtest.check(told["count"] > 3, f"it went on: {told}")


def nothing_is_left(daemon):
    """No region of a client that has ended is held by anybody."""
    gkvtest.wait_for(lambda: all(one["used"] == 0 for one in daemon.gkvctl("provider")), 10,
                     "all VRAM is free again")
    daemon.check_alive()


@gkvtest.named("F57: a region is revoked under load; no processor touches it blindly")
def a_region_is_revoked_under_load():
    guest.need_vram()
    with gkvtest.Daemon(guest.CONFIG) as daemon:
        victim = Client(daemon, MODE_DATA, b"victim")
        others = Client(daemon, MODE_DATA, b"vram"), Client(daemon, 0, b"host")
        time.sleep(1)
        guest.revoke(victim.fd)
        time.sleep(1)
        told = victim.end()
        gkvtest.check(told.get("failure"), f"commands on what is gone fail: {told}")
        gkvtest.check(told["gone"], f"its descriptor says so: {told}")
        gkvtest.equal(told["again"], "well", "the same queue pair with other memory")
        unharmed(*others)
        nothing_is_left(daemon)


@gkvtest.named("F108: a queue pair is reset under DMA, which has ended when that returns")
def a_queue_pair_is_reset_under_dma():
    guest.need_vram()
    # The end of the last value is what comes last.
    count, piece, end = 24, 4 << 20, 65536
    with gkvtest.Daemon(guest.CONFIG) as daemon, \
            Session(daemon, namespace="raw", length=count * piece, mode=MODE_DATA) as s:
        at = guest.vram_offset(s.mem)
        last = at + count * piece - end
        guest.ask("vram-fill", 0x4e5e70, at, count * piece)
        for i in range(count):
            gkvtest.equal(s.status(STORE, b"reset%d" % i, piece, i * piece), 0, f"Store {i}")
        for poison in (0x4e5e71, 0x4e5e72):
            guest.ask("vram-fill", poison + 0x100, at, count * piece)
            ok(LIB.gkv_submit(s.qp, (Cmd * count)(*(
                s.cmd(RETRIEVE, b"reset%d" % i, piece, i * piece) for i in range(count))), count))
            # In the middle of it: some have ended, the others have not.
            gkvtest.equal(LIB.gkv_wait(s.qp, byref(Comp()), 1, 60 * 10**9), 1, "completions")
            gkvtest.check(LIB.gkv_qp_outstanding(s.qp) > 0, "values that are on their way")
            ok(LIB.gkv_qp_reset(s.qp))
            guest.ask("vram-fill", poison, last, end)
            guest.ask("start watch", last, end)
            time.sleep(1)
            guest.ask("stop watch")
            guest.ask("vram-has", poison, last, end)
        guest.retrieve(s, b"reset0", at, piece, piece, 0x4e5e70, 0x4e5e73)
        queue = [one for one in daemon.gkvctl("sessions") if one["pid"] == os.getpid()][0]["qps"][0]
        gkvtest.equal((queue["state"], queue["outstanding"]), ("running", 0), "the queue pair")


@gkvtest.test
def a_provider_is_unbound_under_load():
    guest.need_vram()
    with gkvtest.Daemon(guest.CONFIG) as daemon:
        victims = [Client(daemon, mode, b"v%d" % mode) for mode in (MODE_DATA, 0xf)]
        other = Client(daemon, 0, b"host")
        time.sleep(1)
        guest.unbind()
        time.sleep(1)
        for victim in victims:
            told = victim.end()
            # What reads its own queue in memory that is gone ends so, as the manual says.
            if told.get("signal") == signal.SIGBUS and victim is victims[1]:
                continue
            gkvtest.check(told.get("failure") and told["gone"], f"the client is told: {told}")
        unharmed(other)
        daemon.check_alive()
        guest.bind()
        unharmed(Client(daemon, 0xf, b"after"))
        nothing_is_left(daemon)


@gkvtest.test
def a_killed_daemon_leaves_queues_in_vram_to_the_next_one():
    guest.need_vram()
    with gkvtest.Daemon(guest.CONFIG) as daemon:
        clients = [Client(daemon, mode, b"k%d" % mode) for mode in (0, 0x7, 0xf)]
        for _ in range(2):
            time.sleep(1)
            daemon.kill9()
            daemon.start()
        time.sleep(1)
        for client in clients:
            told = client.end()
            gkvtest.equal(told.get("failure", told), None, "failure of a command")
            gkvtest.equal(told["reconnects"], 2, "times the session was handed over")
        nothing_is_left(daemon)


gkvtest.main()
