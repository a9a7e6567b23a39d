"""Servers for tests of remote storages, each a process of its own, and a proxy that makes faults.

S3 is moto's server. HDFS is Hadoop's own NameNode and DataNode in one JVM, from the jar
`hadoop-client-minicluster`, which Spark's resolver fetches once; the rest of Hadoop comes with
pyspark. What cannot be had is a skip with the reason.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.jvm_archive import QUICK_JVM

CACHE = Path.home() / ".cache" / "weir-tests"
# Every test process imports this file; most need no Spark.
_SPARK = Path(importlib.util.find_spec("pyspark").origin).parent
_JARS = _SPARK / "jars"
# Java runs a source file by itself. The jar's own main class would need JUnit.
_CLUSTER = """
import java.nio.file.*;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

public class Cluster {
    public static void main(String[] args) throws Exception {
        Configuration conf = new Configuration();
        conf.set("hdfs.minidfs.basedir", args[0] + "/data");
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf).numDataNodes(1).build();
        cluster.waitActive();
        Path ready = Paths.get(args[0], "address");
        Files.writeString(Paths.get(args[0], "address.new"), cluster.getHttpUri(0));
        Files.move(Paths.get(args[0], "address.new"), ready);
        Thread.currentThread().join();
    }
}
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextlib.contextmanager
def _process(command: list[str], log: Path, **kwargs: object) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, **kwargs)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _await(ready: object, process: subprocess.Popen[bytes], log: Path, seconds: int) -> None:
    deadline = time.monotonic() + seconds
    while not ready():  # type: ignore[operator]
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.skip(f"the server did not start: {log.read_text(errors='replace')[-500:]}")
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Run moto's S3 and return its address."""
    if importlib.util.find_spec("moto") is None:
        pytest.skip("the S3 test server needs the package moto")
    address = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p"]
    log = folder / "s3.log"
    with _process([*command, address.rpartition(":")[2]], log) as process:
        _await(lambda: _answers(f"{address}/moto-api/"), process, log, 30)
        yield address


def make_bucket(address: str, bucket: str) -> None:
    request = urllib.request.Request(f"{address}/{bucket}", method="PUT")
    urllib.request.urlopen(request, timeout=10).close()


def open_uploads(address: str, bucket: str) -> list[str]:
    """Return the keys of multipart uploads that were neither completed nor aborted."""
    body = urllib.request.urlopen(f"{address}/{bucket}?uploads", timeout=10).read()
    return [e.text or "" for e in ET.fromstring(body).iter() if e.tag.endswith("Key")]


@contextlib.contextmanager
def hdfs_server(folder: Path) -> Iterator[str]:
    """Run a NameNode and a DataNode and return the address of WebHDFS."""
    home = os.environ.get("JAVA_HOME")
    jar, java = _cluster_jar(), f"{home}/bin/java" if home else shutil.which("java")
    if java is None:
        pytest.skip("HDFS needs java")
    path = os.pathsep.join([str(jar), str(_JARS / "*")])
    source, ready, log = folder / "Cluster.java", folder / "address", folder / "hdfs.log"
    source.write_text(_CLUSTER)
    # Its web server unpacks itself into the temporary directory and leaves that behind.
    scratch = f"-Djava.io.tmpdir={folder}"
    command = [java, "-Xmx512m", *QUICK_JVM, scratch, "-cp", path, str(source), str(folder)]
    with _process(command, log) as process:
        _await(ready.exists, process, log, 60)
        yield ready.read_text()


def _cluster_jar() -> Path:
    version = next(_JARS.glob("hadoop-client-api-*.jar")).stem.rpartition("-")[2]
    found = list(CACHE.rglob(f"*hadoop-client-minicluster-{version}.jar"))
    if found:
        return found[0]
    CACHE.mkdir(parents=True, exist_ok=True)
    script = CACHE / "empty.py"
    script.write_text("")
    command = [str(_SPARK / "bin" / "spark-submit")]
    command += ["--packages", f"org.apache.hadoop:hadoop-client-minicluster:{version}"]
    command += ["--exclude-packages", "org.apache.hadoop:hadoop-client-api,"
                "org.apache.hadoop:hadoop-client-runtime"]  # fmt: skip
    command += ["--conf", f"spark.jars.ivy={CACHE / 'ivy'}", str(script)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"hadoop-client-minicluster {version} cannot be fetched: {error}")
    return next((CACHE / "ivy").rglob(f"*hadoop-client-minicluster-{version}.jar"))


class FaultyProxy:
    """Forwards HTTP to a server; a list of faults says what happens to the next requests.

    A fault is a status to answer with instead of forwarding, "lost" to forward and then close the
    connection without an answer, or "pass". `method` limits faults to requests of that method.
    """

    def __init__(self, address: str, method: str) -> None:
        self.faults: list[int | str] = []
        self.always: int | None = None
        self.seen = 0
        proxy, host = self, address.partition("://")[2]

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def handle_request(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fault = proxy.next_fault(self.command == method)
                if isinstance(fault, int):
                    self.answer(fault, {}, b"")
                    return
                connection = http.client.HTTPConnection(host, timeout=20)
                headers = dict(self.headers.items())
                connection.request(self.command, self.path, body, headers)
                response = connection.getresponse()
                content = response.read()
                connection.close()
                if fault == "lost":
                    self.close_connection = True
                    return
                self.answer(response.status, dict(response.getheaders()), content)

            def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                length = headers.get("Content-Length") if self.command == "HEAD" else None
                self.send_header("Content-Length", length or str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_request

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def next_fault(self, concerned: bool) -> int | str | None:
        if not concerned:
            return None
        self.seen += 1
        if self.always is not None:
            return self.always
        return self.faults.pop(0) if self.faults else None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
