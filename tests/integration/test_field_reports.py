#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# gkv-san: no it reads a table
"""tests/field-reports.md says where each field report is tested, and it is so.

usage: test_field_reports.py [--table FILE] [WORD]...
"""
import glob
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../lib"))
import gkvtest  # pylint: disable=wrong-import-position

TOP = os.path.normpath(os.path.join(HERE, "../.."))
TABLE = os.path.join(TOP, "tests/field-reports.md")
EXPECTED = [f"F{i}" for i in range(1, 119)] + [f"R{i}" for i in range(1, 19)]
NUMBER = re.compile(r"\b[FR][1-9][0-9]*\b")
FILE = re.compile(r"\b(?:([a-z]+)/)?((?:test|gkv|user|check)[_-][a-z0-9_]+|hostile|gkvtest)\b")
ENDINGS = (".c", ".py", ".sh")


def rows(text):
    """[(numbers, words of the last column)]"""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and NUMBER.match(cells[0]):
            left = NUMBER.sub("", cells[0]).replace(",", "").strip()
            gkvtest.equal(left, "", f"what is beside the numbers of {cells[0]!r}")
            found.append((NUMBER.findall(cells[0]), cells[2]))
    return found


def files(words):
    """Paths of the files that are named, a folder standing for the names after it as well."""
    paths, folder = [], None
    for match in FILE.finditer(re.sub(r"\(.*?\)", "", words)):
        folder = match.group(1) or folder
        gkvtest.check(folder, f"{match.group()} is in no folder: {words}")
        place = folder if folder in ("selftests", "scripts") else f"tests/{folder}"
        base = os.path.join(TOP, place, match.group(2))
        there = [base + end for end in ENDINGS if os.path.exists(base + end)]
        gkvtest.equal(len(there), 1, f"files called {os.path.relpath(base, TOP)}")
        paths.append(there[0])
    return paths


def is_later(words):
    return words.startswith("later: ")


def numbers_in(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return set(NUMBER.findall(file.read()))


def table():
    with open(TABLE, encoding="utf-8") as file:
        return rows(file.read())


@gkvtest.test
def each_report_is_in_the_table_once():
    found = [number for numbers, _ in table() for number in numbers]
    gkvtest.equal(sorted(set(EXPECTED) - set(found)), [], "reports that are missing")
    gkvtest.equal(sorted(set(found) - set(EXPECTED)), [], "reports that are not known")
    gkvtest.equal(sorted(n for n in set(found) if found.count(n) > 1), [], "reports in two rows")


@gkvtest.test
def each_is_tested_where_the_table_says():
    for numbers, words in table():
        if is_later(words):
            continue
        paths = files(words)
        gkvtest.check(paths, f"{numbers}: no test is named: {words}")
        carried = {path: numbers_in(path) & set(numbers) for path in paths}
        missing = set(numbers).difference(*carried.values())
        gkvtest.equal(sorted(missing), [], f"not in any of {words}")
        idle = [os.path.relpath(path, TOP) for path, has in carried.items() if not has]
        gkvtest.equal(idle, [], f"named beside {numbers}, without carrying one")


@gkvtest.test
def what_comes_later_has_no_test():
    everything = set()
    for pattern in ("tests/*/*", "selftests/*", "selftests/vm/*", "scripts/*"):
        for path in glob.glob(os.path.join(TOP, pattern)):
            if path.endswith(ENDINGS) and path != os.path.abspath(__file__):
                everything |= numbers_in(path)
    later = {n for numbers, words in table() if is_later(words) for n in numbers}
    gkvtest.equal(sorted(later & everything), [], "reports with a test that is said to be later")


if sys.argv[1:2] == ["--table"]:
    TABLE = sys.argv[2]
    del sys.argv[1:3]
gkvtest.main()
