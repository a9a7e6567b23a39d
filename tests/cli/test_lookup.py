"""Which job a command means, and what it says when it cannot ask."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from tests.cli.jobs import invoke, served

from weir.cli.client import RestClient, UnreachableError, jobmanager_url, operation_error
from weir.cli.lookup import JobInfo, announced_token, choose
from weir.errors import (
    CorruptStateError,
    IncompatibleStateError,
    JobExecutionError,
    StorageError,
    UsageError,
)
from weir.testing.manual_job import ManualJob, serve

A, B = "abcd" + "0" * 28, "abce" + "1" * 28


def job(job_id, name, status="RUNNING", **more):
    return JobInfo(job_id, name, status, 0, "http://127.0.0.1:1", **more)


JOBS = [job(A, "payments"), job(B, "fraud"), job("f" * 32, "payments", "FINISHED")]


@pytest.mark.parametrize("text", [A, A.upper(), "abcd", "ABCD0", "payments"])
def test_a_job_is_meant_by_its_id_the_beginning_of_it_or_its_name(text):
    assert choose(text, JOBS).job_id == A


def test_less_than_four_digits_mean_no_job():
    with pytest.raises(UsageError, match="no job 'abc' is running"):
        choose("abc", JOBS)


@pytest.mark.parametrize("text", ["abcd", "same"])
def test_what_means_several_jobs_is_refused_with_all_of_them(text):
    twins = [job("abcd1" + "0" * 27, "same"), job("abcd2" + "0" * 27, "same")]
    with pytest.raises(UsageError, match="several running jobs") as error:
        choose(text, twins)
    assert all(twin.job_id in str(error.value) for twin in twins)


def test_an_unknown_job_is_answered_with_the_running_ones_and_the_nearest():
    with pytest.raises(UsageError) as error:
        choose("paymnets", JOBS)
    said = str(error.value)
    assert "did you mean 'payments'?" in said
    assert A in said
    assert B in said
    assert "f" * 32 not in said


def test_a_mistyped_id_is_answered_with_the_nearest_id():
    with pytest.raises(UsageError, match=f"did you mean '{A}'"):
        choose(A[:-2] + "77", JOBS)


def test_a_job_that_has_ended_is_no_unknown_job():
    ended = [job(A, "payments", "FINISHED", savepoint="/s/savepoint-1")]
    with pytest.raises(UsageError, match="has ended: FINISHED; its last savepoint is '/s/save"):
        choose("abcd", ended)


def test_without_any_job_the_command_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path))
    result = invoke("stop", "abcd")
    assert result.exit_code == 2
    assert "none runs at all" in result.stderr


# ---- the way to a JobManager -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("localhost:8081", "http://localhost:8081"),
        ("http://h:1/", "http://h:1"),
        ("https://h:1", "https://h:1"),
        ("[::1]:8081", "http://[::1]:8081"),
    ],
)
def test_an_address_is_host_and_port_or_a_url(address, url):
    assert jobmanager_url(address) == url


@pytest.mark.parametrize("address", ["localhost", "h:port", "ftp://h:1", ":8081", "h:1?x=y"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(UsageError, match="HOST:PORT"):
        jobmanager_url(address)


def test_a_jobmanager_is_asked_by_address(tmp_path, monkeypatch):
    one = ManualJob("payments")
    with serve(one, tmp_path) as server:
        monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "nothing here"))
        monkeypatch.setenv("WEIR_TOKEN", server.token)
        address = server.url.removeprefix("http://")
        result = invoke("savepoint", "payments", str(tmp_path), "-m", address, "--json")
        assert json.loads(result.stdout)["job_id"] == one.job_id
        monkeypatch.setenv("WEIR_JOBMANAGER", address)
        assert json.loads(invoke("list", "--json").stdout)[0]["job_id"] == one.job_id


def test_a_token_is_taken_from_the_announcement_the_option_or_the_variable(tmp_path, monkeypatch):
    with serve(ManualJob("payments"), tmp_path, token="secret") as server:
        assert invoke("checkpoint", "payments").exit_code == 0
        asked = ("list", "-m", server.url)
        assert "payments" in invoke(*asked).stdout
        assert "payments" in invoke("list", "-m", f"localhost:{server.port}").stdout
        monkeypatch.setenv("WEIR_RUN_DIR", str(tmp_path / "nothing here"))
        refused = invoke(*asked)
        assert refused.exit_code == 2
        assert "WEIR_TOKEN" in refused.stderr
        assert "payments" in invoke(*asked, "--token", "secret").stdout
        monkeypatch.setenv("WEIR_TOKEN", "secret")
        shown = invoke(*asked, "--json")
        assert shown.exit_code == 0
        assert "secret" not in shown.stdout


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{other}", "http://jobs.example:{port}", "http://127.0.0.2:{port}"]
)
def test_an_announced_token_goes_to_its_own_address_only(tmp_path, url):
    with serve(ManualJob("payments"), tmp_path, token="secret") as server:
        assert announced_token(server.url) == "secret"
        given = url.format(port=server.port, other=server.port + 1)
        assert announced_token(given) == ""


def test_the_token_of_a_job_is_told_to_who_asks_for_it(tmp_path):
    with serve(ManualJob("payments"), tmp_path) as server:
        assert invoke("token", "payments").stdout == f"{server.token}\n"
        assert invoke("token", "payment").exit_code == 2
    with serve(ManualJob("open"), tmp_path, token="none"):
        refused = invoke("token", "open")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "weir.rest.token is 'none'" in refused.stderr
        assert invoke("checkpoint", "open").exit_code == 0


def test_jobs_are_not_looked_for_where_others_can_write(tmp_path):
    with serve(ManualJob("payments"), tmp_path):
        tmp_path.chmod(0o777)
        for words in (("list",), ("stop", "payments")):
            refused = invoke(*words)
            assert refused.exit_code == 5
            assert "mode 0777" in refused.stderr
            assert "WEIR_RUN_DIR" in refused.stderr
        tmp_path.chmod(0o700)


def test_a_jobmanager_that_does_not_answer_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        result = invoke("list", "-m", f"127.0.0.1:{port}")
    assert result.exit_code == 1
    assert f"http://127.0.0.1:{port} does not answer" in result.stderr


class Stranger(BaseHTTPRequestHandler):
    """A server that is no JobManager."""

    def do_GET(self):
        kind = self.path.split("/")[1]
        self.send_response({"moved": 302, "broken": 500}.get(kind, 200))
        if kind == "moved":
            self.send_header("Location", "/elsewhere")
        text = b'{"some": "thing"}' if kind == "jobs" else b"<html>hello</html>"
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args):
        """Be quiet."""


@pytest.fixture
def stranger():
    server = HTTPServer(("127.0.0.1", 0), Stranger)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("path", ["/page", "/moved", "/broken"])
def test_what_answers_but_is_no_jobmanager_is_told_apart(stranger, path):
    with pytest.raises(UnreachableError, match="is no JobManager"):
        RestClient(stranger, "secret").get(path)


def test_json_of_something_else_is_no_list_of_jobs(stranger):
    result = invoke("list", "-m", stranger)
    assert result.exit_code == 1
    assert "it does not list jobs" in result.stderr


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        ({"class": "StorageError", "stack-trace": "full"}, StorageError),
        ({"class": "weir.errors.UsageError", "stack-trace": "full"}, UsageError),
        ({"class": "IncompatibleStateError", "stack-trace": "full"}, IncompatibleStateError),
        ({"class": "CorruptStateError", "stack-trace": "full"}, CorruptStateError),
        ({"class": "java.io.IOException", "stack-trace": "full"}, JobExecutionError),
        ("full", JobExecutionError),
    ],
)
def test_the_error_of_an_operation_keeps_its_kind(cause, kind):
    error = operation_error(cause)
    assert type(error) is kind
    assert str(error) == "full"


def test_two_jobs_of_two_drivers_are_found_and_told_apart(tmp_path):
    first, second = ManualJob("first"), ManualJob("second")
    with served(tmp_path, first, second):
        invoke("checkpoint", "second")
    assert [call.name for call in first.calls] == []
    assert [call.name for call in second.calls] == ["checkpoint"]
