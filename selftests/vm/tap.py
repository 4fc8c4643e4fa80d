# SPDX-License-Identifier: MIT
"""Merges the TAP and KTAP of the guest's programs into one, and judges each program by its counts."""
import re

RESULT = re.compile(r"^(not )?ok\b\s*(\d+)?\s*(?:-\s+)?(.*)$")
PLAN = re.compile(r"^1\.\.(\d+)\s*(?:#\s*SKIP\S*\s*(.*))?$", re.IGNORECASE)
TOTALS = re.compile(r"^# Totals: pass:(\d+) fail:(\d+) xfail:(\d+) xpass:(\d+) skip:(\d+) error:(\d+)")
SKIP = re.compile(r"#\s*SKIP\b\s*(.*)$", re.IGNORECASE)
KSFT_SKIP = 4


class Writer:
    """Prints results with numbers of their own. `label` tells one machine's from another's."""

    def __init__(self, label="", first=1, out=print):
        self.label = label
        self.first = self.next = first
        self.failed = 0
        self.out = out

    def result(self, good, name, why=()):
        name = f"{self.label}: {name}" if self.label else name
        self.out(f"{'ok' if good else 'not ok'} {self.next} - {name}")
        for line in why:
            self.out(line if line.startswith("#") else f"# {line}")
        self.next += 1
        self.failed += not good

    @property
    def count(self):
        return self.next - self.first


class Program:
    """One program's output, line by line, and what is wrong with it at its end."""

    def __init__(self, name, writer):
        self.name = name
        self.writer = writer
        self.plan = None
        self.skip_all = None
        self.results = {"pass": 0, "fail": 0, "skip": 0}
        self.totals = None
        self.problems = []

    @property
    def count(self):
        return sum(self.results.values())

    def line(self, text):
        if match := PLAN.match(text):
            if self.plan is not None:
                self.problems.append("printed a second plan")
            self.plan = int(match.group(1))
            if self.plan == 0:
                self.skip_all = match.group(2) or ""
            return
        if match := RESULT.match(text):
            self.result(not match.group(1), match.group(2), match.group(3).strip())
            return
        if text.startswith("Bail out!"):
            self.problems.append(text)
        if match := TOTALS.match(text):
            self.totals = [int(number) for number in match.groups()]
        if not re.match(r"^K?TAP version ", text):
            self.writer.out(text)

    def result(self, good, number, name):
        if number is not None and int(number) != self.count + 1:
            self.problems.append(f"result {number} came as number {self.count + 1}")
        skip = SKIP.search(name)
        if skip and not skip.group(1):
            self.problems.append("skipped without a reason")
        self.results["skip" if skip else "pass" if good else "fail"] += 1
        self.writer.result(good, f"{self.name}: {name}")

    def end(self, status):
        """The program has ended with this exit status; None when it never did."""
        if status is None:
            self.problems.append("did not end")
        elif status == 137:
            self.problems.append("was killed, or ran into its time limit")
        elif status > 128:
            self.problems.append(f"was ended by signal {status - 128}")
        elif status not in (0, KSFT_SKIP) and not self.results["fail"]:
            self.problems.append(f"ended with status {status} and no failed test")
        elif status == 0 and self.results["fail"]:
            self.problems.append("ended with status 0 in spite of failed tests")
        if self.plan is None:
            self.problems.append("printed no plan")
        elif self.plan != self.count:
            self.problems.append(f"planned {self.plan} tests and reported {self.count}")
        elif not self.count and self.skip_all is None:
            self.problems.append("reported no test")
        if self.skip_all == "":
            self.problems.append("skipped without a reason")
        if self.totals is not None:
            passed, failed, xfail, xpass, skip, error = self.totals
            if passed + xfail + xpass != self.results["pass"] or skip != self.results["skip"] or \
                    failed + error != self.results["fail"]:
                self.problems.append(f"its totals {self.totals} are not those of its results")
        if self.problems:
            self.writer.result(False, f"{self.name}: the program", self.problems)
        elif self.skip_all is not None:
            self.writer.result(True, f"{self.name}: all # SKIP {self.skip_all}")
