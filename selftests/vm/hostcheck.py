# SPDX-License-Identifier: MIT
"""What the host sees: the test pattern, and searches for it in the files behind the guest.

The pattern of a seed is a stream of 64-byte lines of little-endian 64-bit words. Word 0 is the
seed's tag, so that one pass finds every line wherever it landed; each of words 1 to 7 grows with
the line's number, so that every line says which one it is. hostcheck.h has the same in C.
"""
import array
import mmap
import os
import struct
import sys

LINE = 64
WORDS = 8
STEP = 0x9E3779B1
GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
CHUNK = 1 << 20


def splitmix64(value):
    value = (value + GOLDEN) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def bases(seed):
    """Word 0 of every line, and words 1 to 7 of line 0; these leave room for 2**30 lines."""
    return [splitmix64(seed & MASK)] + [
        splitmix64((seed + k * GOLDEN) & MASK) >> 2 for k in range(1, WORDS)]


def pattern(seed, start, length):
    """Bytes [start, start + length) of the seed's pattern."""
    if not length:
        return b""
    first, last = start // LINE, (start + length + LINE - 1) // LINE
    count = last - first
    base = bases(seed)
    words = array.array("Q", [base[0]]) * (count * WORDS)
    for k in range(1, WORDS):
        words[k::WORDS] = array.array("Q", range(base[k] + first * STEP, base[k] + last * STEP,
                                                 STEP))
    if sys.byteorder == "big":
        words.byteswap()
    skip = start - first * LINE
    return words.tobytes()[skip:skip + length]


def fill(path, seed, offset, length, start=0):
    """Writes the pattern into a file that is there, within its size."""
    if offset + length > os.path.getsize(path):
        raise ValueError(f"{offset}+{length} is beyond the end of {os.path.basename(path)}")
    with open(path, "r+b", buffering=0) as file:
        for done in range(0, length, CHUNK):
            data = pattern(seed, start + done, min(CHUNK, length - done))
            if os.pwrite(file.fileno(), data, offset + done) != len(data):
                raise OSError(f"short write to {path}")


def first_difference(path, seed, offset, length, start=0):
    """The first byte of [offset, offset + length) that is not the pattern's, or None."""
    with open(path, "rb", buffering=0) as file:
        for done in range(0, length, CHUNK):
            want = pattern(seed, start + done, min(CHUNK, length - done))
            got = os.pread(file.fileno(), len(want), offset + done)
            if got == want:
                continue
            same = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), len(got))
            return done + same
    return None


def data_extents(fd):
    """The parts of a sparse file that hold anything."""
    size, at = os.fstat(fd).st_size, 0
    while at < size:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            return
        end = os.lseek(fd, at, os.SEEK_HOLE)
        yield at, end
        at = end


def find_lines(path, seed):
    """(line number -> offset in the file) of every whole line of the seed's pattern found."""
    base = bases(seed)
    tag = struct.pack("<Q", base[0])
    found = {}
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return found
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
            for at, end in data_extents(file.fileno()):
                while (at := view.find(tag, at, end)) >= 0:
                    line = line_at(view, at, base)
                    if line is not None:
                        found[line] = at
                    at += len(tag)
    return found


def line_at(view, at, base):
    """Which line of the pattern the 64 bytes are, or None when they are not one."""
    if at + LINE > len(view):
        return None
    words = struct.unpack_from("<8Q", view, at)
    line, rest = divmod(words[1] - base[1], STEP)
    if rest or line < 0:
        return None
    return line if all(words[k] == base[k] + line * STEP for k in range(2, WORDS)) else None


def is_action(request):
    """Whether the host only does something, which is no result unless it fails."""
    verb = request.split(" ")[0]
    return verb.endswith("-fill") or verb in ("start", "stop")


class Host:
    """Answers the guest's requests. `files` maps vram, vram2, ram and disk to their paths."""

    VERBS = {"fill": (3, 4), "has": (3, 4), "lacks": (1, 2), "holds": (2, 2)}

    def __init__(self, files, hooks=None):
        self.files = files
        self.hooks = hooks

    def request(self, text):
        """Runs "TARGET-VERB NUMBER..." or a hook; returns None when it holds, else why not."""
        try:
            words = text.split()
            if self.hooks and len(words) > 1 and words[0] in ("start", "wait", "stop", "run"):
                return self.hooks.request(text)
            target, _, verb = words[0].rpartition("-")
            if verb not in ("bytes", *self.VERBS) or \
                    target not in ("vram", "vram2", "ram", "disk", "disk2"):
                return f"unknown request {text!r}"
            if target not in self.files:
                return f"this machine has no {target}"
            if verb == "bytes":
                return self.bytes(self.files[target], int(words[1], 0), bytes.fromhex(words[2]))
            low, high = self.VERBS[verb]
            numbers = [int(word, 0) for word in words[1:]]
            if not low <= len(numbers) <= high or min(numbers[1:], default=0) < 0:
                return f"{words[0]} takes {low} to {high} numbers"
            return getattr(self, verb)(self.files[target], *numbers)
        except (ValueError, IndexError, OSError) as error:
            return f"{text!r}: {error}"

    @staticmethod
    def fill(path, seed, offset, length, start=0):
        """TARGET-fill SEED OFFSET LENGTH [START]: writes the pattern's bytes from START on."""
        fill(path, seed, offset, length, start)

    @staticmethod
    def has(path, seed, offset, length, start=0):
        """TARGET-has SEED OFFSET LENGTH [START]: they are at OFFSET."""
        if length <= 0:
            return "a length of 0 proves nothing"
        at = first_difference(path, seed, offset, length, start)
        if at is None:
            return None
        with open(path, "rb") as file:
            got = os.pread(file.fileno(), 16, offset + at).hex(" ", 8) or "the end of the file"
        want = pattern(seed, start + at, 16).hex(" ", 8)
        return f"byte {at} of {length}, at {offset + at:#x}: {got} instead of {want}"

    @staticmethod
    def bytes(path, offset, want):
        """TARGET-bytes OFFSET HEX: those bytes are at OFFSET."""
        if not want:
            return "no bytes prove nothing"
        with open(path, "rb", buffering=0) as file:
            got = os.pread(file.fileno(), len(want), offset)
        return None if got == want else f"at {offset:#x} is {got.hex()}"

    @staticmethod
    def lacks(path, seed, length=None):
        """TARGET-lacks SEED [LENGTH]: no line of the pattern's first LENGTH bytes is anywhere."""
        found = find_lines(path, seed)
        if length is not None:
            found = {line: at for line, at in found.items() if line * LINE < length}
        if not found:
            return None
        line = min(found)
        return f"{len(found)} lines of the pattern are there, line {line} at {found[line]:#x}"

    @staticmethod
    def holds(path, seed, length):
        """TARGET-holds SEED LENGTH: every line of them is somewhere."""
        if length < LINE:
            return f"less than a line of {LINE} bytes cannot be searched for"
        found = find_lines(path, seed)
        missing = [line for line in range(length // LINE) if line not in found]
        if not missing:
            return None
        return f"{len(missing)} of {length // LINE} lines are nowhere, the first is {missing[0]}"
