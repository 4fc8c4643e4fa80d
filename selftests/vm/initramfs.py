# SPDX-License-Identifier: MIT
"""The guest's initramfs: busybox, kernel modules with what they depend on, the test programs."""
import lzma
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile


class Error(Exception):
    pass


class Root:
    """The Debian root that root.sh made, and the debug kernel beside it, if there is one."""

    def __init__(self, cache):
        self.path = os.path.realpath(os.path.join(cache, "root"))
        self.debug = os.path.join(cache, "debug")
        try:
            with open(os.path.join(self.path, "rig/versions"), encoding="utf-8") as file:
                self.versions = dict(line.split() for line in file)
        except OSError as error:
            raise Error(f"no complete root in {cache}; make it with root.sh ({error})") from error

    def version(self, kernel):
        """The version of "newest", "stable" or "debug", or of a series such as "6.12"."""
        if kernel == "debug":
            try:
                with open(os.path.join(self.debug, "complete"), encoding="utf-8") as file:
                    return file.read().split()[0] + "-debug"
            except OSError as error:
                raise Error(f"no debug kernel; make it with debug-kernel.sh ({error})") from error
        for name, version in self.versions.items():
            if kernel in (name, version) or version.startswith(kernel + "."):
                return version
        raise Error(f"no kernel {kernel} in the root, which has {self.versions}")

    def modules_dir(self, version):
        return os.path.join(self.path, "usr/lib/modules", version)

    def vmlinuz(self, kernel):
        if kernel == "debug":
            return os.path.join(self.debug, "bzImage")
        return os.path.join(self.modules_dir(self.version(kernel)), "vmlinuz")

    def modules(self, kernel, names):
        """The files of the named modules and all they need, in the order to load them."""
        if kernel == "debug":
            return []  # debug.config has them built in
        base = self.modules_dir(self.version(kernel))

        def name_of(path):
            return os.path.basename(path).split(".")[0].replace("-", "_")

        needs = {}
        with open(os.path.join(base, "modules.dep"), encoding="utf-8") as file:
            for line in file:
                path, _, rest = line.partition(":")
                needs[name_of(path)] = (path, [name_of(need) for need in rest.split()])
        with open(os.path.join(base, "modules.builtin"), encoding="utf-8") as file:
            builtin = {name_of(line.strip()) for line in file}
        # Not known to the linker but needed all the same: "softdep NAME pre: A post: B".
        soft = {}
        with open(os.path.join(base, "modules.softdep"), encoding="utf-8") as file:
            for line in file:
                if match := re.match(r"softdep (\S+)(?: pre:([^:]*))?(?: post:([^:]*))?$", line):
                    soft[name_of(match[1])] = [
                        [name_of(word) for word in (part or "").split()] for part in match.groups()[1:]]
        # Some are named by an alias: of those who have it, the one that any CPU can run.
        real = set(needs)
        with open(os.path.join(base, "modules.alias"), encoding="utf-8") as file:
            for line in file:
                _, alias, name = (line.split() + ["", ""])[:3]
                alias, name = name_of(alias), name_of(name)
                if name in real and alias not in real and \
                        (alias not in needs or name.endswith("_generic")):
                    needs[alias] = needs[name]
        order = []

        def add(name):
            path, after = needs[name]
            if os.path.join(base, path) in order:
                return
            before, behind = soft.get(name, ([], []))
            # modules.dep names all that a module needs, the outermost first.
            for need in before + after[::-1]:
                if need in needs:
                    add(need)
            order.append(os.path.join(base, path))
            for need in behind:
                if need in needs:
                    add(need)

        for name in names:
            name = name.replace("-", "_")
            if name in needs:
                add(name)
            elif name not in builtin:
                raise Error(f"kernel {kernel} has no module {name}")
        return order


class Archive:
    """A cpio archive in memory; not compressed, as the guest would only have to undo that."""

    def __init__(self):
        self.parts = []
        self.names = set()
        self.inode = 0

    def entry(self, name, mode, data=b"", device=(0, 0), mtime=0):
        name = name.strip("/")
        if name in self.names:
            return
        self.names.add(name)
        self.inode += 1
        fields = (self.inode, mode, 0, 0, 1, mtime, len(data), 0, 0, *device, len(name) + 1, 0)
        header = b"070701" + b"".join(b"%08x" % field for field in fields)
        body = header + name.encode() + b"\0"
        body += b"\0" * (-len(body) % 4)
        self.parts += [body, data, b"\0" * (-len(data) % 4)]

    def directory(self, name):
        parent = os.path.dirname(name.strip("/"))
        if parent and parent not in self.names:
            self.directory(parent)
        self.entry(name, stat.S_IFDIR | 0o755)

    def file(self, name, data, mode=0o755, mtime=0):
        self.directory(os.path.dirname(name.strip("/")) or ".")
        self.entry(name, stat.S_IFREG | mode, data, mtime=mtime)

    def symlink(self, name, target):
        self.directory(os.path.dirname(name.strip("/")))
        self.entry(name, stat.S_IFLNK | 0o777, target.encode())

    def copy(self, path, name, alone=False):
        """A file of this machine; unless alone, a dynamic program brings its libraries."""
        with open(path, "rb") as file:
            data = file.read()
        self.file(name, data, 0o755 if os.access(path, os.X_OK) else 0o644,
                  int(os.stat(path).st_mtime))
        if not alone and data.startswith(b"\x7fELF") and b"ld-linux" in data[:4096]:
            for library in libraries(["ldd", path]):
                self.copy(library, library)

    def bytes(self):
        self.entry("TRAILER!!!", 0)
        return b"".join(self.parts)


def libraries(command):
    """What the dynamic linker would load, itself included; command is ldd or the linker itself."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if "not found" in result.stdout:
        raise Error(f"{command[-1]} lacks libraries:\n{result.stdout}")
    return re.findall(r"(?:=>\s+|^\s+)(/\S+) \(", result.stdout, re.MULTILINE)


def add_python(archive, root):
    """Python of the root, with what its standard library has but for its tests and tools."""
    binary = os.path.realpath(os.path.join(root.path, "usr/bin/python3"))
    version = os.path.basename(binary)
    paths = [binary]
    for base, folders, files in os.walk(os.path.join(root.path, "usr/lib", version)):
        folders[:] = [name for name in folders if not name.startswith("config-") and name not in (
            "test", "idlelib", "ensurepip", "lib2to3", "pydoc_data", "turtledemo", "tkinter")]
        # Links into the root's /etc lead nowhere from here.
        paths += [path for name in files if os.path.isfile(path := os.path.join(base, name))]
    for path in paths:
        archive.copy(path, os.path.relpath(path, root.path), alone=True)
    # The linker of the root, so that its own libraries are found and not this machine's.
    folder = os.path.join(root.path, "usr/lib/x86_64-linux-gnu")
    linker = os.path.join(folder, "ld-linux-x86-64.so.2")
    needed = {linker}
    for path in paths:
        if path == binary or path.endswith(".so"):
            needed |= set(libraries([linker, "--library-path", folder, "--list", path]))
    for path in sorted(needed):
        archive.copy(path, os.path.relpath(path, root.path).removeprefix("usr/"), alone=True)
    archive.symlink("lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    archive.symlink("usr/bin/python3", version)
    archive.symlink("usr/bin/env", "/bin/busybox")


def add_user(archive, top, build):
    """User space that user.sh built, in /host with its linker and libraries; the tests' helpers."""
    archive.directory("var/lib/gkv")
    for name in ("kvbridged", "gkvctl", "gkv-bench", "gkv-gpusim"):
        path = os.path.join(build, name)
        if not os.path.isfile(path):
            raise Error(f"no {path}: run user.sh")
        archive.copy(path, f"host/{name}", alone=True)
        for library in libraries(["ldd", path]):
            name = os.path.basename(library)
            where = "host/lib/" + ("ld.so" if name.startswith("ld-linux") else name)
            archive.copy(library, where, alone=True)
            # A library that says itself where its own are does not ask elsewhere.
            archive.directory(os.path.dirname(library))
            archive.symlink(library, "/" + where)
    archive.copy(os.path.join(build, "guest/libgkv.so.0"), "host/libgkv.so.0", alone=True)
    for name in ("tests/lib/gkvlib.py", "tests/lib/gkvtest.py", "selftests/lib/guest.py",
                 "selftests/lib/gpu.py", "selftests/lib/exporter.py"):
        archive.copy(os.path.join(top, name), f"host/python/{os.path.basename(name)}")


def add_modules_dir(archive, root, version, modules):
    """/lib/modules of the guest, for programs that load modules by name: our own only."""
    with tempfile.TemporaryDirectory(dir=os.path.join(root.path, "tmp")) as work:
        base = os.path.join(work, "lib/modules", version)
        os.makedirs(os.path.join(base, "updates"))
        for path in modules:
            shutil.copy(path, os.path.join(base, "updates"))
        for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
            source = os.path.join(root.modules_dir(version), name)
            if os.path.exists(source):
                shutil.copy(source, base)
        inside = "/" + os.path.relpath(work, root.path)
        try:
            subprocess.run(["chroot", root.path, "/usr/sbin/depmod", "-b", inside, version],
                           check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Error(f"depmod: {getattr(error, 'stderr', None) or error}") from error
        for folder, _, files in os.walk(base):
            for name in files:
                path = os.path.join(folder, name)
                archive.copy(path, os.path.relpath(path, work), alone=True)


def kernel_module(path):
    """A module's name in the guest and its contents, decompressed."""
    with open(path, "rb") as file:
        data = file.read()
    name = os.path.basename(path)
    if name.endswith(".xz"):
        return name[:-3], lzma.decompress(data)
    return name, data


def base_archive(root, init):
    """What every guest has: directories, busybox, and `init` as its first process."""
    archive = Archive()
    for name in ("bin", "dev", "proc", "sys", "tmp", "run", "modules", "tests", "files", "etc"):
        archive.directory(name)
    # The kernel opens it for /init before there is a devtmpfs.
    archive.entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    archive.copy(os.path.join(root.path, "usr/bin/busybox"), "bin/busybox")
    archive.copy(init, "init")
    archive.file("etc/passwd", b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
                 0o644)
    archive.file("etc/group", b"root:x:0:\nnogroup:x:65534:\n", 0o644)
    return archive


def build(root, kernel, init, rig, environment, modules, own_modules, programs, files, user=None):
    """The whole initramfs.

    modules are names of the distribution's, loaded at boot; own_modules are paths of .ko files,
    for the guest's first process to load or for programs to. rig are that process's own settings;
    environment goes to every program. user is what user.sh built, if programs need it.
    """
    for path in own_modules + [word.split()[0] for word in programs] + \
            [word.partition(":")[0] for word in files]:
        if not os.path.isfile(path):
            raise Error(f"no file {path}")
    archive = base_archive(root, init)
    archive.copy(os.path.join(os.path.dirname(init), "host"), "bin/host")
    loads = []
    for path in root.modules(kernel, modules):
        name, data = kernel_module(path)
        archive.file(f"modules/{name}", data, 0o644)
        loads.append(name)
    for path in own_modules:
        name, data = kernel_module(path)
        archive.file(f"modules/{name}", data, 0o644)
    if any(word.split()[0].endswith(".py") for word in programs):
        add_python(archive, root)
    if user:
        add_user(archive, os.path.join(os.path.dirname(init), "../.."), user)
        add_modules_dir(archive, root, root.version(kernel), own_modules)
    names = []
    for program in programs:
        path, *arguments = program.split()
        name = os.path.basename(path)
        archive.copy(path, f"tests/{name}")
        names.append(" ".join([name, *arguments]))
    for path in files:
        source, _, target = path.partition(":")
        archive.copy(source, target or f"files/{os.path.basename(source)}")
    archive.file("rig/modules", "".join(name + "\n" for name in loads).encode(), 0o644)
    archive.file("rig/programs", "".join(name + "\n" for name in names).encode(), 0o644)
    lines = [f"rig_{name}={shlex.quote(str(value))}\n" for name, value in rig.items()]
    lines += [f"export {name}={shlex.quote(value)}\n" for name, value in environment.items()]
    archive.file("rig/settings", "".join(lines).encode(), 0o644)
    return archive.bytes()
