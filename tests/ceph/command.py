# SPDX-License-Identifier: MIT
"""The cluster as a command, for demos, benchmarks and by hand: cluster.py VERB DIR."""
import argparse
import os
import sys

from cluster import DEFAULTS, Cluster, ClusterError


def parse(argv):
    parser = argparse.ArgumentParser(
        description="A throwaway Ceph cluster on loopback, in one directory.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name, text):
        sub = verbs.add_parser(name, help=text, description=text)
        sub.add_argument("dir", help="directory of the cluster")
        return sub

    start = verb("start", "make the cluster, or start a stopped one; print its configuration file")
    start.add_argument("--osds", type=int, choices=range(1, 10), default=1)
    start.add_argument("--store", choices=("bluestore", "memstore"), default="bluestore")
    start.add_argument("--cephx", action="store_true", help="clients must have a key")
    start.add_argument("--mode", choices=("crc", "secure"), default="crc",
                       help="of connections; secure takes --cephx")
    start.add_argument("--size", type=int, default=1, help="replicas (1)")
    start.add_argument("--pgs", type=int, default=8, help="placement groups of a pool (8)")
    start.add_argument("--pools", nargs="*", default=["kv"], metavar="POOL", help="pools (kv)")
    start.add_argument("--mgr", action="store_true", help="with a manager: statistics, quotas")
    start.add_argument("--root", help="chroot with the Ceph release to run")
    start.add_argument("--space", type=int, default=DEFAULTS["space"],
                       help="bytes of an OSD")
    start.add_argument("--extra", default="", help="text for the end of the configuration file")
    verb("stop", "end the daemons, keep the data")
    verb("wipe", "end the daemons and remove the directory")
    verb("status", "show the daemons")
    verb("full", "set the pools' flag \"full\"")
    verb("unfull", "clear the pools' flag \"full\"")
    verb("pool", "make a pool").add_argument("name")
    for name, text in (("kill", "kill -9 a daemon (osd.0, mon.a)"), ("pause", "SIGSTOP a daemon"),
                       ("cont", "SIGCONT a daemon"), ("launch", "start a daemon that is down"),
                       ("terminate", "end a daemon in an orderly way")):
        verb(name, text).add_argument("name")
    return parser.parse_args(argv)


def status(cluster):
    for name, daemon in cluster.daemons.items():
        print(f"{name:8} {'pid ' + str(daemon.pid()) if daemon.pid() else 'down'}")


def run(args):
    if args.verb == "start":
        options = {name: getattr(args, name) for name in vars(args) if name in DEFAULTS}
        os.makedirs(args.dir, exist_ok=True)
        cluster = Cluster(args.dir, args.pools, bound=False, **options)
        cluster.agent.close()
        print(cluster.conf)
        return
    if not os.path.exists(os.path.join(args.dir, "cluster.json")):
        if args.verb == "wipe" and not os.path.exists(args.dir):
            return
        raise ClusterError(f"no cluster in {args.dir}")
    cluster = Cluster(args.dir, bound=False, start=False)
    try:
        if args.verb == "status":
            status(cluster)
        elif args.verb in ("full", "unfull"):
            cluster.full(args.verb == "full")
        elif args.verb == "pool":
            cluster.create_pool(args.name)
        elif hasattr(args, "name"):
            if args.name not in cluster.daemons:
                raise ClusterError(f"no such daemon: {args.name}")
            getattr(cluster, args.verb)(args.name)
        else:
            getattr(cluster, args.verb)()
    finally:
        cluster.agent.close()


def main():
    try:
        run(parse(sys.argv[1:]))
    except ClusterError as problem:
        sys.exit(f"cluster: {problem}")
