#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-san: no compiles against the plain build
"""README.md tells the truth: its C example compiles and runs, its make targets exist."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import gkvtest  # pylint: disable=wrong-import-position

TOP = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))


def blocks(language):
    with open(os.path.join(TOP, "README.md"), encoding="utf-8") as file:
        return re.findall(rf"^```{language}\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)


def build(code, directory):
    source = os.path.join(directory, "example.c")
    program = os.path.join(directory, "example")
    with open(source, "w", encoding="utf-8") as file:
        file.write(code)
    done = subprocess.run(
        ["gcc", "-Wall", "-Wextra", "-Werror", f"-I{TOP}/lib/include", f"-I{TOP}/uapi", source,
         "-o", program, f"{gkvtest.BUILD}/libgkv.a", "-pthread"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    gkvtest.equal(done.returncode, 0, f"compiler's exit status\n{done.stdout}")
    return program


@gkvtest.test
def the_first_C_example_compiles_and_runs():
    examples = blocks("c")
    gkvtest.check(examples, "README.md has no C example")
    with gkvtest.Daemon() as daemon:
        program = build(examples[0], daemon.dir)
        done = subprocess.run([program], env=dict(os.environ, GKV_SOCKET=daemon.socket),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=30, check=False)
        gkvtest.equal(done.returncode, 0, f"exit status\n{done.stdout}")


@gkvtest.test
def the_make_targets_it_names_exist():
    shell = "\n".join(blocks("sh") + blocks("console") + blocks("bash"))
    targets = set(re.findall(r"\bmake ([a-z][a-z-]*)\b", shell))
    gkvtest.check("demo" in targets, "README.md does not show make demo")
    env = {name: value for name, value in os.environ.items()
           if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    database = subprocess.run(["make", "-C", TOP, "-npq", "help", "BUILD=" + gkvtest.BUILD],
                              env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=False).stdout
    known = set(re.search(r"^\.PHONY: (.*)$", database, re.MULTILINE).group(1).split())
    gkvtest.check(targets <= known, f"unknown targets: {sorted(targets - known)}")


if __name__ == "__main__":
    gkvtest.main()
