#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-san: no compiles examples against a plain build
"""The examples of device code: the one for C runs, those for GPUs compile."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import gkvtest  # pylint: disable=wrong-import-position

TOP = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
INCLUDES = [f"-I{TOP}/uapi", f"-I{TOP}/lib/include"]

# What the examples need of HIP's header, for a compiler without it.
HIP = """
#include <stddef.h>
#define __global__ __attribute__((global))
typedef int hipError_t;
typedef void *hipStream_t;
enum { hipMemcpyDeviceToHost = 2 };
hipError_t hipMalloc(void **, size_t);
hipError_t hipMemset(void *, int, size_t);
hipError_t hipMemcpy(void *, const void *, size_t, int);
struct dim3 { dim3(unsigned = 1, unsigned = 1, unsigned = 1) {} };
extern "C" hipError_t __hipPushCallConfiguration(dim3, dim3, size_t = 0, hipStream_t = 0);
"""


def run(*command, env=None, status=0):
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=240, check=False)
    gkvtest.equal(done.returncode, status, f"exit status of {' '.join(command)}\n{done.stdout}\n")
    return done.stdout


def source(name):
    return os.path.join(TOP, "examples", name)


@gkvtest.test
def a_prefix_is_fetched_up_to_the_first_miss():
    with tempfile.TemporaryDirectory() as root, gkvtest.Daemon() as daemon:
        program = os.path.join(root, "prefix")
        run("cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", *INCLUDES,
            source("prefix.c"), "-o", program, os.path.join(gkvtest.BUILD, "libgkv.a"), "-pthread")
        env = dict(os.environ, GKV_SOCKET=daemon.socket)
        # All, some, none; one doorbell and many; a queue that takes one command.
        for blocks, stored, depth in ((200, 150, 256), (200, 150, 16), (40, 40, 16), (40, 0, 64),
                                      (20, 19, 2), (1, 1, 2)):
            output = run(program, str(blocks), str(stored), str(depth), env=env)
            said = re.match(r"(\d+) of (\d+) blocks before the first miss, (\d+) tokens, "
                            r"[0-9.]+ ms; (\d+) are not", output)
            gkvtest.equal(tuple(map(int, said.groups())), (stored, blocks, stored * 256, 0),
                          f"depth {depth}: blocks fetched, wanted, tokens, wrong")


@gkvtest.test
def those_for_cuda_compile():
    if not shutil.which("nvcc"):
        raise gkvtest.Skip("no nvcc on this machine")
    with tempfile.TemporaryDirectory() as root:
        oldest = sorted((int(arch.split("_")[1]) for arch in
                         run("nvcc", "--list-gpu-arch").split() if arch[8:].isdigit()
                         and int(arch[8:]) >= 70))[0]
        for name in ("hello.cu", "prefix.cu", "../tests/gpu/bench.cu"):
            run("nvcc", f"-arch=sm_{oldest}", "-std=c++17", "-Werror", "all-warnings", *INCLUDES,
                "-o", os.path.join(root, "program"), source(name),
                os.path.join(gkvtest.BUILD, "libgkv.a"))


@gkvtest.test
def the_kernel_for_hip_compiles():
    with tempfile.TemporaryDirectory() as root:
        os.mkdir(os.path.join(root, "hip"))
        with open(os.path.join(root, "hip/hip_runtime.h"), "w", encoding="utf-8") as file:
            file.write(HIP)
        for chip in ("gfx90a", "gfx1030"):
            run("clang", "-x", "hip", "--cuda-device-only", f"--offload-arch={chip}",
                "-nogpuinc", "-nogpulib", "-I" + root, *INCLUDES, "-std=c++17", "-O2", "-Wall",
                "-Wextra", "-Werror", "-S", "-o", os.path.join(root, "kernel.s"),
                source("hello.hip"))
            with open(os.path.join(root, "kernel.s"), encoding="utf-8") as file:
                gkvtest.check("amdhsa_kernel" in file.read(), f"{chip}: no kernel")


gkvtest.main()
