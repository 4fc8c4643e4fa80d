# SPDX-License-Identifier: MIT
"""Runs the programs of one Ceph release: this machine's, or those in a chroot.

In a chroot the cluster's directory is mounted at its own path, in a mount namespace of the
process alone, so that paths mean the same inside and outside and nothing is left mounted.
"""
import ctypes
import os
import shutil
import signal
import subprocess

# What runs inside the new mount namespace; $1 is the chroot, $2 the cluster's directory.
ENTER = """set -e
root=$1; dir=$2; shift 2
for special in proc dev sys; do mount --rbind "/$special" "$root/$special"; done
mount --bind "$dir" "$root$dir"
exec chroot "$root" "$@"
"""
# The caller's own Ceph settings must not reach a throwaway cluster.
FOREIGN = ("CEPH_ARGS", "CEPH_CONF", "CEPH_KEYRING", "CEPH_LIB")

_libc = ctypes.CDLL(None)


class ClusterError(Exception):
    """A cluster, or a program of it, does not do what it should."""


def _die_with_parent():
    pr_set_pdeathsig = 1
    _libc.prctl(pr_set_pdeathsig, signal.SIGKILL)


class Release:
    """Where the programs are. @root: a chroot, or None."""

    def __init__(self, directory, root=None):
        self.dir = directory
        self.root = os.path.abspath(root) if root else None
        if self.root:
            if os.geteuid() != 0:
                raise ClusterError("a chroot takes root")
            os.makedirs(self.root + directory, exist_ok=True)
        missing = [name for name in ("ceph-mon", "ceph-osd", "monmaptool", "rados")
                   if not self.which(name)]
        if missing:
            raise ClusterError(f"missing{' in ' + self.root if self.root else ''}: "
                               f"{' '.join(missing)} (Debian packages ceph-mon ceph-osd "
                               "ceph-common python3-rados)")

    def which(self, name):
        path = ":".join((self.root or "") + d for d in ("/usr/bin", "/usr/sbin", "/bin", "/sbin"))
        return shutil.which(name, path=path)

    def command(self, args):
        args = [str(arg) for arg in args]
        if not self.root:
            return args
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh",
                self.root, self.dir, *args]

    @staticmethod
    def environment():
        env = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        # Sanitizers' and interpreters' settings are for the programs under test.
        return dict(env, PATH="/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL="C.UTF-8")

    def run(self, *args, stdin=None, seconds=60, check=True):
        """Runs a program to its end: a subprocess.CompletedProcess with bytes."""
        try:
            done = subprocess.run(self.command(args), input=stdin, env=self.environment(),
                                  stdin=subprocess.DEVNULL if stdin is None else None,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{' '.join(map(str, args))}: no end after {seconds} s") from None
        if check and done.returncode != 0:
            raise ClusterError(f"{' '.join(map(str, args))}: exit status {done.returncode}\n"
                               f"{done.stderr.decode(errors='replace')[-2000:]}")
        return done

    def spawn(self, *args, bound=True, **kwargs):
        """Starts a program. @bound: it dies with the calling thread."""
        return subprocess.Popen(self.command(args), env=self.environment(), cwd=self.dir,
                                start_new_session=not bound,
                                preexec_fn=_die_with_parent if bound else None, **kwargs)

    def forget(self):
        """Removes the mount point in the chroot."""
        path = self.root and self.root + self.dir
        while path and path != self.root:
            try:
                os.rmdir(path)
            except OSError:
                return
            path = os.path.dirname(path)
