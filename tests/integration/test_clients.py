#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-san: no compiles against an installed plain build
"""Programs built against the installed library, headers and pkg-config file run."""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import gkvtest  # pylint: disable=wrong-import-position

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.abspath(os.path.join(HERE, "../.."))
PREFIX = "/opt/gkv"
EXAMPLE = os.path.join(TOP, "examples/hello.c")


def run(*command, env=None):
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
    gkvtest.equal(done.returncode, 0, f"exit status of {' '.join(command)}\n{done.stdout}\n")
    return done.stdout


def install(root):
    # A sub-make of a test must not join the job server of the make that runs the tests.
    env = {name: value for name, value in os.environ.items()
           if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    run("make", "-C", TOP, "--no-print-directory", "install", f"BUILD={gkvtest.BUILD}",
        f"DESTDIR={root}", f"PREFIX={PREFIX}", env=env)


def build(root, compiler, *sources):
    env = dict(os.environ, PKG_CONFIG_SYSROOT_DIR=root,
               PKG_CONFIG_LIBDIR=f"{root}{PREFIX}/lib/pkgconfig")
    flags = run("pkg-config", "--cflags", "--libs", "libgkv", env=env).split()
    program = os.path.join(root, "program")
    run(compiler, "-O2", "-Wall", "-Wextra", "-Werror", *sources, "-o", program, *flags)
    return program


def loaded(root, socket):
    return dict(os.environ, LD_LIBRARY_PATH=f"{root}{PREFIX}/lib", GKV_SOCKET=socket)


@gkvtest.test
def the_ten_line_example_stores_and_retrieves():
    with tempfile.TemporaryDirectory() as root, gkvtest.Daemon() as daemon:
        install(root)
        program = build(root, "cc", EXAMPLE)
        gkvtest.equal(run(program, env=loaded(root, daemon.socket)), "hello, 6 bytes\n", "output")


@gkvtest.test
def the_example_is_the_one_in_the_readme():
    with open(os.path.join(TOP, "README.md"), encoding="utf-8") as file:
        shown = re.search(r"^```c\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL).group(1)
    with open(EXAMPLE, encoding="utf-8") as file:
        gkvtest.equal(file.read(), "/* SPDX-License-Identifier: MIT */\n" + shown,
                      "examples/hello.c")


@gkvtest.test
def a_cxx_program_builds_and_runs():
    with tempfile.TemporaryDirectory() as root, gkvtest.Daemon() as daemon:
        install(root)
        program = build(root, "c++", "-std=c++11", "-pedantic",
                        os.path.join(HERE, "cxx_smoke.cc"))
        gkvtest.equal(run(program, daemon.socket, env=loaded(root, daemon.socket)), "ok\n",
                      "output")


gkvtest.main()
