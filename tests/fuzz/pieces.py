"""What odd inputs are made of: texts that are nearly times, ids, names and JSON, and mutations of bytes."""

from __future__ import annotations

import json
from random import Random

#: Bytes that mean something to one of the formats, or break it.
TOKENS = (
    b'"', b",", b";", b"\t", b"\r", b"\n", b"\r\n", b"\0", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xc3", b"\xed\xa0\x80",
    b"\\", b"\\u", b"\\ud800", b"\\u0000", b"{", b"}", b"[", b"]", b":", b"}, {", b"},{", b"]]", b"[[[[", b"NaN", b"Infinity",
    b"-Infinity", b"1e400", b"-1", b"0", b"9223372036854775807", b"18446744073709551616", b"4294967295", b"N/A", b"null",
    b"true", b'"ph"', b'"ts"', b'"args":{', b'"dur":', b"X", b"''", b'""', b" ", b"\x1b[31m", b"\xe2\x80\xae", b"\x1f\x8b\x08",
)  # fmt: skip

ODD_TIMES = (
    "", " ", "N/A", "nan", "NaN", "inf", "-inf", "Infinity", "1e400", "1e-400", "-1e400", "1e9999999999999", "0", "0.0", "-0", "+5",
    "-1", "-1736408883704643.212", "1736408883704643.212\t", "\t1736408883704643.212", "1,736,408,883,704,643.212", ".", "-.",
    ".5", "5.", "1.7364088837046432e15", "9223372036854775.807", "9223372036854775.808", "-9223372036854775.809",
    "0.00000000000000000000000000000000000000001", "0.0005", "0.0015", "1736408883704643.2125", "1736408883704643,212",
    "0x10", "1_000", "１２３", "1e", "e5", "--1", "1 2", "1736408883704643.212000000000000000000001", "9" * 40, "1" + "0" * 60,
    "99999999999999999999.999", "1e18", "1E+3", "'1'", "true", "\u00a01\u00a0", "1\u2028", "\u200b1", "١٢",
)  # fmt: skip

ODD_TEXTS = (
    "", " ", "N/A", "MatMul", "aclnnAdd_AddAiCore_Add", "hcom_allReduce__123_4_1", "allreduceAicpuKernel", "MoeDistributeDispatch",
    "MoeDistributeCombineV2", '"a""b"', '"', 'a"b', "a,b", '"1,2;3,4"', "<script>alert(1)</script>", "=cmd|' /C calc'!A0", "../../etc/passwd",
    "/dev/zero", "\x1b]0;x\x07", "ab\x00cd", "\u202eabc", "名前", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    "a\r\nb", "\ufeff", "x" * 300, "$(id)", "%s%n", "'; DROP TABLE slice; --", "scheduler.run_batch", "step[DECODE bs=1]", "Free",
    "Computing", "Communication", "EVENT_WAIT", "MODEL_EXECUTE", "NOTIFY_WAIT",
)  # fmt: skip

ODD_IDS = (
    "0", "1", "2", "7", "43", "-1", "4294967295", "4294967296", "2147483648", "9223372036854775807", "9223372036854775808",
    "18446744073709551616", "N/A", "", "1.0", "1e3", "0x5", "abc", "007", " 3", "3\t", "true", "null", "٣",
)  # fmt: skip

EPOCH_US = 1736408883704643


def time_text(rng: Random, odd: float = 0.15) -> str:
    """Decimal microseconds, mostly near each other."""
    if rng.random() < odd:
        return rng.choice(ODD_TIMES)
    return f"{EPOCH_US + rng.randrange(50)}.{rng.randrange(1000):03d}" + ("\t" if rng.random() < 0.3 else "")


def duration_text(rng: Random, odd: float = 0.15) -> str:
    return rng.choice(ODD_TIMES) if rng.random() < odd else f"{rng.randrange(20)}.{rng.randrange(1000):03d}"


def id_text(rng: Random, odd: float = 0.15) -> str:
    return rng.choice(ODD_IDS) if rng.random() < odd else str(rng.randrange(4))


def text(rng: Random, odd: float = 0.3) -> str:
    return rng.choice(ODD_TEXTS) if rng.random() < odd else f"k{rng.randrange(5)}"


def odd_json(rng: Random, depth: int = 0) -> str:
    """A JSON value of any kind as text, now and then one that is none."""
    kind = rng.randrange(12)
    if kind < 2:
        return json.dumps(rng.choice(ODD_TEXTS))
    if kind < 4:
        return rng.choice(ODD_IDS) or '""'
    if kind == 4:
        return rng.choice(
            ("true", "false", "null", "NaN", "Infinity", "-Infinity", "1e400", "-0", "1.5", "[]", "{}", "01", "'x'")
        )
    if kind == 5:
        return json.dumps(rng.choice(ODD_TIMES))
    if kind == 6:
        return str(rng.uniform(-1e20, 1e20))
    if kind == 7 and depth < 3:
        return "[" + ",".join(odd_json(rng, depth + 1) for _ in range(rng.randrange(4))) + "]"
    if kind == 8 and depth < 3:
        return (
            "{" + ",".join(f"{json.dumps(text(rng))}:{odd_json(rng, depth + 1)}" for _ in range(rng.randrange(4))) + "}"
        )
    if kind == 9 and rng.random() < 0.05:
        nested = rng.choice((63, 64, 65, 200, 1100))
        return "[" * nested + "]" * nested
    return str(rng.randrange(10))


def mutated(rng: Random, data: bytes, most: int = 3) -> bytes:
    """A few mutations: bytes set, ranges cut, repeated or swapped, tokens put in, the end cut off."""
    for _ in range(rng.randint(1, most)):
        at, other = rng.randint(0, len(data)), rng.randint(0, len(data))
        low, high = min(at, other), max(at, other)
        kind = rng.randrange(8)
        if kind <= 2:
            token = rng.choice(TOKENS)
            data = data[:at] + token + data[at + (len(token) if kind == 2 else 0) :]
        elif kind == 3 and data:
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        elif kind == 4:
            data = data[:low] + data[min(high, low + rng.randint(1, 40)) :]
        elif kind == 5:
            data = data[:high] + data[low : min(high, low + 200)] + data[high:]
        elif kind == 6 and rng.random() < 0.5:
            data = data[:at]
        else:
            lines = data.split(b"\n")
            a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[a], lines[b] = lines[b], lines[a]
            data = b"\n".join(lines)
    return data
