"""Remote inputs and targets against a real S3 server on this machine, and fsspec's memory file system."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.converter.test_command_line import environment, kernel_csv, run

fsspec = pytest.importorskip("fsspec")


def test_names_are_remote_only_with_a_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from converter.remote import is_remote

    monkeypatch.chdir(tmp_path)
    assert is_remote("s3://bucket/a") and is_remote("memory://a")
    for local in ("a/b", "/a", "a:b", "C:\\x", "-"):
        assert not is_remote(local)


def test_memory_gives_the_bytes_of_the_local_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from converter.batch import Request
    from converter.batch import run as convert

    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "host_1_ascend_pt"
    kernel_csv(folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv")
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/night/host_1_ascend_pt", recursive=True)
    assert convert(Request(["memory://night/host_1_ascend_pt"], out_dir="memory://traces", quiet=True)) == 0
    remote = memory.cat_file("/traces/host_1_ascend_pt.pftrace")
    assert convert(Request(["host_1_ascend_pt"], output="here.pftrace", quiet=True)) == 0
    # only the name of the input differs, and with it a length
    here = (tmp_path / "here.pftrace").read_bytes()
    assert b"memory://night/host_1_ascend_pt" in remote and len(remote) - len(here) <= 30
    assert memory.ls("/traces", detail=False) == ["/traces/host_1_ascend_pt.pftrace"]


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """The environment that leads to a local S3 server with the bucket `profiles`."""
    pytest.importorskip("s3fs")
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    variables = {
        "FSSPEC_S3_ENDPOINT_URL": url, "FSSPEC_S3_KEY": "test", "FSSPEC_S3_SECRET": "test",
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
    }  # fmt: skip
    import s3fs

    fs = s3fs.S3FileSystem(endpoint_url=url, key="test", secret="test", skip_instance_cache=True)
    fs.mkdir("profiles")
    yield {**variables, "URL": url}
    server.stop()


def listed(s3: dict[str, str]) -> list[str]:
    import s3fs

    fs = s3fs.S3FileSystem(endpoint_url=s3["URL"], key="test", secret="test", skip_instance_cache=True)
    return sorted(fs.find("profiles"))


def put(s3: dict[str, str], local: Path, name: str) -> None:
    import s3fs

    fs = s3fs.S3FileSystem(endpoint_url=s3["URL"], key="test", secret="test", skip_instance_cache=True)
    fs.put_file(str(local), f"profiles/{name}")


def convert(s3: dict[str, str], cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "converter", "convert", *args]
    return subprocess.run(
        argv, cwd=cwd, env={**environment(), **s3}, capture_output=True, text=True, check=False, timeout=120
    )


def test_captures_in_a_bucket(tmp_path: Path, s3: dict[str, str]) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    env = {**s3, "TMPDIR": str(scratch)}
    table = kernel_csv(tmp_path / "kernel_details.csv", rows=50)
    for name in ("a_ascend_pt", "b_ascend_pt"):
        put(s3, table, f"night/{name}/ASCEND_PROFILER_OUTPUT/kernel_details.csv")
    (tmp_path / "broken.csv").write_text("x\n")
    put(s3, tmp_path / "broken.csv", "night/c_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv")
    urls = [f"s3://profiles/night/{name}_ascend_pt" for name in "abc"]
    done = convert(env, tmp_path, *urls, "--out-dir", "s3://profiles/traces", "--summary", "-", "--jobs", "2")
    assert done.returncode == 1, done.stderr
    assert sorted(json.loads(line)["output"] for line in done.stdout.splitlines()) == [
        f"s3://profiles/traces/{name}_ascend_pt.pftrace" for name in "ab"
    ]
    assert [n for n in listed(s3) if "traces" in n] == [f"profiles/traces/{name}_ascend_pt.pftrace" for name in "ab"]
    # the message names what the user named, and nothing stays on this machine
    assert "s3://profiles/night/c_ascend_pt" in done.stderr and str(scratch) not in done.stderr
    assert not list(scratch.iterdir())
    again = convert(env, tmp_path, urls[0], "-o", "here.pftrace", "--skip-existing")
    assert again.returncode == 0, again.stderr
    assert run("check", "here.pftrace", "--against", "kernel_details.csv", cwd=tmp_path).returncode == 0
    assert "up to date" in convert(env, tmp_path, urls[0], "-o", "here.pftrace", "--skip-existing").stderr


def test_what_is_not_there_is_usage(tmp_path: Path, s3: dict[str, str]) -> None:
    done = convert(s3, tmp_path, "s3://profiles/nowhere", "-o", "o.pftrace")
    assert done.returncode == 2 and "s3://profiles/nowhere: no such file or folder" in done.stderr
    kernel_csv(tmp_path / "k.csv")
    done = convert(s3, tmp_path, "k.csv", "-o", "s3://nobucket/o.pftrace")
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1 and "nobucket" in done.stderr
    done = convert(s3, tmp_path, "k.csv", "-o", "nosuchscheme://x/o.pftrace")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == ["k.csv"]
