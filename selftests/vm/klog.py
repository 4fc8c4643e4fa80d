# SPDX-License-Identifier: MIT
"""What a kernel's log must not hold. One list, for the guest's dmesg and for its console."""
import re

# An expression that is too wide fails every run: normal boots print "RETBleed: WARNING: ...",
# "DMAR: IOMMU enabled" and the like. One that is too narrow fails none: test_rig.py has samples.
START = r"(?:^|\] |> )"
TROUBLE = [(name, re.compile(expression)) for name, expression in (
    ("warning", r"cut here"),
    ("warning", START + r"WARNING: "),
    ("warning", r"WARNING: (?:CPU: |\S+\.[chS]:\d)"),
    ("BUG", r"\bBUG: |kernel BUG at"),
    ("oops", r"\bOops\b|general protection fault|[Uu]nable to handle "),
    ("panic", r"Kernel panic"),
    ("stack trace", r"Call Trace"),
    ("KASAN", r"\bKASAN\b"),
    ("KCSAN", r"\bKCSAN\b"),
    ("UBSAN", r"\bUBSAN\b"),
    ("lockdep", r"possible (?:circular|recursive|irq|deadlock).*(?:locking|lock|detected)"),
    ("lockdep", r"inconsistent lock state|held lock freed|lock held when returning|bad unlock"),
    ("RCU", r"suspicious RCU|rcu.*(?:detected stalls|self-detected stall)"),
    ("hung task", r"INFO: task .* blocked|soft lockup|hard LOCKUP"),
    ("DMA fault", r"DMAR:.*\bfault\b|DMAR: \[DMA|IO_PAGE_FAULT"),
    ("DMA misuse", r"DMA-API: .*(?:device driver|leak|overflow)"),
    ("refused I/O", r"invalid error, dev"),
    ("I/O error", r"(?:I/O|critical \S+) error, dev"),
    ("NVMe timeout", r"nvme.*(?:timeout, (?:aborting|reset|completion)|controller is down)"),
    ("memory leak", r"kmemleak: .*new suspected"),
    ("bad page", r"Bad page (?:state|map)|page dumped because|Bad rss-counter"),
    ("refcount", r"refcount_t: |list_(?:add|del) corruption"),
    ("module", r"[Uu]nknown symbol|disagrees about version of symbol|Device or resource leak"),
)]


def trouble(lines, allowed=()):
    """[(line number, name, line)] of what must not be there, less what is expected."""
    allowed = [re.compile(expression) for expression in allowed]
    found = []
    for number, line in enumerate(lines):
        for name, expression in TROUBLE:
            if expression.search(line):
                if not any(expected.search(line) for expected in allowed):
                    found.append((number, name, line))
                break
    return found


def report(where, lines, found, around=12):
    """Diagnostics: each finding, and the lines after the first."""
    out = [f"# {where}: {name}: {line}" for _, name, line in found[:20]]
    if len(found) > 20:
        out.append(f"# {where}: {len(found) - 20} more")
    if found:
        first = max(found[0][0] - 2, 0)
        out += [f"# {where}| {line}" for line in lines[first:first + around]]
    return out


def contains(lines, expression):
    return any(re.search(expression, line) for line in lines)
