"""SECURITY.md, line by line: what the packages never do, and what a capture full of paths doesn't make them do."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from converter.engine import open_trace
from schemas.errors import EngineError

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("converter", "annotators", "schemas", "samples")
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "execfile", "breakpoint"}
FORBIDDEN_MODULES = {
    "shelve", "marshal", "dill", "cloudpickle", "yaml", "xml", "lxml", "ctypes", "telnetlib", "pty", "code", "codeop", "runpy",
}  # fmt: skip
FORBIDDEN_ATTRIBUTES = {
    ("os", "system"), ("os", "popen"), ("os", "execv"), ("os", "spawnv"), ("subprocess", "getoutput"),
    ("subprocess", "getstatusoutput"), ("tempfile", "mktemp"), ("np", "load"), ("numpy", "load"), ("pd", "read_pickle"),
    ("pd", "eval"), ("joblib", "load"),
}  # fmt: skip
#: Each with its reason in SECURITY.md.
MAY_PICKLE = {"converter/shelf.py"}
MAY_START_PROCESSES = {"converter/wasm_engine.py"}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def test_no_code_from_text_no_shell_no_pickle() -> None:
    found = []
    for name, tree in sources():
        for node in ast.walk(tree):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name.partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module.partition(".")[0]]
            for module in modules:
                if module in FORBIDDEN_MODULES:
                    found.append(f"{name}:{node.lineno}: {module}")
                if module == "pickle" and name not in MAY_PICKLE:
                    found.append(f"{name}:{node.lineno}: pickle")
                if module == "subprocess" and name not in MAY_START_PROCESSES:
                    found.append(f"{name}:{node.lineno}: subprocess")
            if isinstance(node, ast.Call):
                function = node.func
                if isinstance(function, ast.Name) and function.id in FORBIDDEN_CALLS:
                    found.append(f"{name}:{node.lineno}: {function.id}()")
                if any(k.arg == "shell" for k in node.keywords):
                    found.append(f"{name}:{node.lineno}: shell=")
                if any(k.arg == "allow_pickle" for k in node.keywords):
                    found.append(f"{name}:{node.lineno}: allow_pickle=")
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and (node.value.id, node.attr) in FORBIDDEN_ATTRIBUTES
            ):
                found.append(f"{name}:{node.lineno}: {node.value.id}.{node.attr}")
    assert not found


# A run under an audit hook: every file opened, process started and socket made is listed on stdout.
WATCH = """
import json, os, sys
seen = []
def hook(event, args):
    if event in ('open', 'os.listdir', 'os.scandir', 'sqlite3.connect', 'subprocess.Popen', 'os.exec', 'os.posix_spawn',
                 'os.system', 'socket.connect', 'socket.bind', 'socket.getaddrinfo', 'urllib.Request', 'ctypes.dlopen', 'os.remove',
                 'os.rename', 'os.mkdir', 'shutil.rmtree', 'import'):
        if event != 'import':
            seen.append((event, str(args[0])))
from converter.batch import run
from converter.request import Request
sys.addaudithook(hook)
status = run(Request(inputs=sys.argv[1:2], output='out.pftrace', quiet=True))
sys.stdout.write(json.dumps([status, seen]))
"""


def capture_of_paths(folder: Path, paths: list[str]) -> Path:
    """A capture whose names, arguments, ids, ranks, groups and sources are all paths."""
    capture = folder / "host_ascend_pt"
    output = capture / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    header = "Name,Type,Accelerator Core,Input Shapes,Start Time(us),Duration(us),Stream ID,Task ID"
    rows = [f"{p},{p},AI_CORE,{p},{1736408883704643 + i}.000,1.5,{i},{p}" for i, p in enumerate(paths)]
    (output / "kernel_details.csv").write_text("\n".join([header, *rows]) + "\n")
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "Python"}}
    ]
    for i, p in enumerate(paths):
        moment = f"{1736408883704643 + 5 * i}.000"
        events.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": i, "args": {"name": p}})
        events.append(
            {
                "ph": "X",
                "name": p,
                "cat": p,
                "pid": 1,
                "tid": i,
                "ts": moment,
                "dur": 2,
                "args": {p: p, "Call stack": p, "file": p},
            }
        )
        events.append({"ph": "C", "name": p, "pid": p, "ts": moment, "args": {p: 1}})
    (output / "trace_view.json").write_text(json.dumps(events))
    (output / "step_trace_time.csv").write_text(f"Device_id,Step,Computing\n{paths[0]},{paths[0]},1\n")
    (output / "memory_record.csv").write_text(
        f"Component,Timestamp(us),Total Reserved(MB),Device Type\n{paths[0]},1736408883704643.1,1,{paths[0]}\n"
    )
    info = {
        "config": {"common_config": {"record_shapes": paths[0]}},
        "hostname": paths[0],
        "hostUid": paths[0],
        "include": paths[0],
    }
    (capture / "profiler_info_0.json").write_text(json.dumps(info))
    group = {"group_name": paths[0], "global_ranks": [0]}
    (capture / "profiler_metadata.json").write_text(
        json.dumps({"parallel_group_info": {paths[0]: group}, "$ref": paths[0]})
    )
    return capture


def test_paths_in_inputs_are_never_opened(tmp_path: Path) -> None:
    secret = tmp_path / "elsewhere" / "secret"
    secret.parent.mkdir()
    secret.write_text("SECRET-CANARY")
    paths = [
        str(secret),
        f"file://{secret}",
        "../elsewhere/secret",
        "../../elsewhere/secret",
        "http://127.0.0.1:9/x",
        "/etc/hostname",
        "|touch x",
        "~/x",
    ]
    work = tmp_path / "work"
    work.mkdir()
    capture_of_paths(work, paths)
    done = subprocess.run(
        [sys.executable, "-c", WATCH, "host_ascend_pt"],
        cwd=work,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    status, seen = json.loads(done.stdout)
    assert status == 0
    libraries = (
        sys.prefix,
        sys.base_prefix,
        str(ROOT),
        "/usr/lib",
        "/usr/share/zoneinfo",
        "/lib",
        "/proc/self",
        "/proc/cpuinfo",
        "/sys/",
        "/dev/null",
    )
    outside = []
    opened = 0
    for event, what in seen:
        assert not event.startswith(("socket", "subprocess", "os.exec", "os.posix_spawn", "os.system", "urllib")), what
        if event == "ctypes.dlopen" or what.isdigit() or what.startswith(libraries):
            continue
        opened += 1
        real = os.path.realpath(work / what)
        if not real.startswith(os.path.realpath(work) + os.sep) and real != os.path.realpath(work):
            outside.append((event, what))
    assert opened >= 6 and not outside
    assert {p.name for p in work.iterdir()} == {"host_ascend_pt", "out.pftrace"}
    assert b"SECRET-CANARY" not in (work / "out.pftrace").read_bytes()


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    from converter.convert import convert

    target = tmp_path_factory.mktemp("trace") / "t.pftrace"
    convert([str(ROOT / "samples" / "gap_teaching.csv")], str(target))
    return str(target)


def test_sql_reads_and_writes_no_file(trace: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("SECRET-CANARY")
    new = tmp_path / "new"
    with open_trace(trace) as tp:
        for sql in (
            f"ATTACH DATABASE '{new}' AS x",
            f"ATTACH DATABASE 'file:{new}?mode=rwc' AS x",
            f"ATTACH DATABASE '{secret}' AS z",
            f"SELECT readfile('{secret}')",
            f"SELECT writefile('{new}', 'x')",
            f"SELECT EXPORT_JSON('{new}')",
            f"SELECT RUN_METRIC('{secret}')",
            f"SELECT load_extension('{secret}')",
            f"VACUUM INTO '{new}'",
            f"PRAGMA temp_store_directory = '{tmp_path}'",
            f"CREATE VIRTUAL TABLE c USING csv(filename = '{secret}')",
            f"SELECT * FROM fsdir('{tmp_path}')",
            f"SELECT edit('x', 'touch {new}')",
            f"INCLUDE PERFETTO MODULE `{secret}`",
            f".read {secret}",
        ):
            with pytest.raises(EngineError) as caught:
                tp.rows(sql)
            assert "SECRET-CANARY" not in str(caught.value)
        assert tp.rows("SELECT 1") == [(1,)]
    assert [p.name for p in tmp_path.iterdir()] == ["secret"]


def test_the_engine_is_not_told_what_its_user_told_node(
    trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.js"
    script.write_text(f"require('fs').writeFileSync('{tmp_path / 'ran'}', '')")
    monkeypatch.setenv("NODE_OPTIONS", f"--require {script}")
    with open_trace(trace) as tp:
        assert tp.rows("SELECT 1") == [(1,)]
    assert not (tmp_path / "ran").exists()
