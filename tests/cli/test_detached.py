"""`weir run`: its options, and jobs that outlive the command."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.jobs import invoke
from tests.left_behind import end, with_variable

from weir.cli.detached import LOGS_KEPT, remove_old_logs
from weir.config import ambient

SETTINGS = "from weir.config import ambient\nprint(dict(ambient.layers()[-1]))\n"
# Announces a job as a driver does, and stays until it is told to go.
DRIVER = """
import os, sys
from pathlib import Path
from weir.jobmanager import directory
from weir.storage.processes import process_started
pid = os.getpid()
print("driver says", sys.argv[1:], os.environ.get("SPARK_MASTER"), os.getsid(0) == pid, flush=True)
directory.publish(directory.JobEntry(job_id="ab" * 16, name="driver", pid=pid,
    process=process_started(pid), url="http://127.0.0.1:9", started_ms=1, status=sys.argv[1]))
if sys.argv[1] == "RUNNING":
    fifo = Path(sys.argv[2])
    fifo.read_text()
"""


def program(folder: Path, text: str) -> str:
    path = folder / "job.py"
    path.write_text(text)
    return str(path)


@pytest.fixture
def run_dir(tmp_path, monkeypatch):
    """The directory of jobs; whatever was started with it goes with the test that started it."""
    place = tmp_path / "run"
    monkeypatch.setenv("WEIR_RUN_DIR", str(place))
    yield place
    end(with_variable("WEIR_RUN_DIR", str(place)))


@pytest.mark.parametrize("flag", ["-cm", "--claimMode", "-rm", "--restoreMode"])
@pytest.mark.parametrize(
    ("mode", "value"), [("claim", "CLAIM"), ("no_claim", "NO_CLAIM"), ("LEGACY", "LEGACY")]
)
def test_a_claim_mode_has_an_old_and_a_new_spelling(tmp_path, flag, mode, value):
    result = invoke("run", "-s", "/x", flag, mode, program(tmp_path, SETTINGS))
    assert eval(result.stdout)["execution.state-recovery.claim-mode"] == value


def test_two_claim_modes_contradict_each_other(tmp_path):
    result = invoke("run", "-cm", "claim", "-rm", "legacy", program(tmp_path, SETTINGS))
    assert result.exit_code == 2
    assert "contradict" in result.stderr


def test_settings_may_be_glued_to_their_letter(tmp_path):
    job = program(tmp_path, SETTINGS)
    result = invoke("run", "-Dparallelism.default=3", "-D", "weir.trigger=5 s", job)
    assert eval(result.stdout) == {"parallelism.default": "3", "weir.trigger": "5 s"}
    assert ambient.layers()[-1] == {}


@pytest.mark.parametrize("flag", ["-py", "--python"])
def test_a_program_may_be_named_as_in_pyflink(tmp_path, flag):
    job = program(tmp_path, "import sys\nprint(sys.argv[1:])")
    assert invoke("run", flag, job, "in.csv", "--fast").stdout == "['in.csv', '--fast']\n"


def test_the_master_is_sparks_while_the_program_runs(tmp_path, monkeypatch):
    monkeypatch.delenv("SPARK_MASTER", raising=False)
    job = program(tmp_path, "import os\nprint(os.environ['SPARK_MASTER'])")
    assert invoke("run", "--master", "spark://h:7077", job).stdout == "spark://h:7077\n"
    assert "SPARK_MASTER" not in os.environ
    monkeypatch.setenv("SPARK_MASTER", "local[1]")
    assert invoke("run", "--master", "spark://h:7077", job).stdout == "spark://h:7077\n"
    assert os.environ["SPARK_MASTER"] == "local[1]"


@pytest.mark.parametrize("words", [(), ("no-such-job.py",), (".",)])
def test_what_is_no_program_is_a_usage_error(words):
    result = invoke("run", *words)
    assert result.exit_code == 2
    assert result.stderr.startswith("weir: ")


def test_json_needs_a_job_that_does_not_print_itself(tmp_path):
    assert invoke("run", "--json", program(tmp_path, SETTINGS)).exit_code == 2


# ---- run -d ------------------------------------------------------------------------------------


def test_a_detached_job_goes_on_after_the_command(tmp_path, run_dir):
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    job = program(tmp_path, DRIVER)
    words = ["run", "-d", "--json", "--master", "local[7]", job, "RUNNING", str(fifo)]
    done = subprocess.run(
        [sys.executable, "-m", "weir.cli.main", *words], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    assert told["job_id"] == "ab" * 16
    os.kill(told["pid"], 0)
    listed = json.loads(invoke("list", "--json").stdout)
    assert [one["pid"] for one in listed] == [told["pid"]]
    said = Path(told["log"]).read_text()
    assert said == f"driver says ['RUNNING', '{fifo}'] local[7] True\n"
    assert Path(told["log"]).stat().st_mode & 0o077 == 0
    fifo.write_text("go")


def test_a_job_that_is_over_before_it_is_seen_was_submitted(tmp_path, run_dir):
    result = invoke("run", "-d", program(tmp_path, DRIVER), "FINISHED")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"Job has been submitted with JobID {'ab' * 16}\n"
    assert str(run_dir / "logs" / "job-") in result.stderr


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("raise SystemExit(7)", 7, "exit code 7"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", 137, "signal 9"),
        ("print('nothing to do')", 1, "nothing to do"),
        ("from weir.errors import StorageError\nraise StorageError('full')", 5, "weir: full"),
    ],
)
def test_a_program_that_dies_before_its_job_starts_is_reported(tmp_path, run_dir, text, code, said):
    result = invoke("run", "-d", program(tmp_path, text))
    assert result.exit_code == code
    assert "started no job" in result.stderr
    assert said in result.stderr


def test_settings_reach_a_detached_program(tmp_path, run_dir):
    job = program(tmp_path, SETTINGS)
    words = ("-p", "3", "-s", "/x", "-n", "-cm", "claim", "-Dpipeline.name=b=c")
    result = invoke("run", "-d", *words, job)
    shown = eval(result.stderr.splitlines()[-1])
    assert shown == {
        "pipeline.name": "b=c",
        "parallelism.default": "3",
        "execution.state-recovery.path": "/x",
        "execution.state-recovery.ignore-unclaimed-state": "true",
        "execution.state-recovery.claim-mode": "CLAIM",
    }


def test_an_interrupt_while_a_job_starts_leaves_it_alone(tmp_path, run_dir):
    fifo, up = tmp_path / "go", tmp_path / "up"
    os.mkfifo(fifo)
    os.mkfifo(up)
    job = program(
        tmp_path,
        "import os, sys\nfrom pathlib import Path\n"
        "Path(sys.argv[2]).write_text(str(os.getpid()))\nPath(sys.argv[1]).read_text()",
    )
    words = ["run", "-d", job, str(fifo), str(up)]
    command = subprocess.Popen(
        [sys.executable, "-m", "weir.cli.main", *words], stderr=subprocess.PIPE, text=True
    )
    pid = int(up.read_text())
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=60)
    assert command.returncode == 130
    assert "goes on; look with: weir list, or its log" in err
    os.kill(pid, 0)


def test_logs_of_programs_that_ended_are_kept_up_to_a_number(run_dir):
    folder = run_dir / "logs"
    folder.mkdir(parents=True, mode=0o700)
    run_dir.chmod(0o700)
    logs = [folder / f"job-{number:02}.log" for number in range(LOGS_KEPT + 5)]
    for number, log in enumerate(logs):
        log.touch()
        os.utime(log, (number, number))
    with logs[0].open("ab") as used:
        fcntl.flock(used, fcntl.LOCK_SH)
        remove_old_logs(folder)
    assert [log for log in logs if not log.exists()] == logs[1:5]


def test_a_log_is_in_use_while_the_program_runs(tmp_path, run_dir):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    words = ("run", "-d", "--json", program(tmp_path, DRIVER), "RUNNING", str(fifo))
    told = json.loads(invoke(*words).stdout)
    log = Path(told["log"])
    os.utime(log, (1, 1))
    for number in range(LOGS_KEPT + 1):
        (log.parent / f"other-{number}.log").touch()
    remove_old_logs(log.parent)
    assert log.exists()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    fifo.write_text("go")
    with log.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    remove_old_logs(log.parent)
    assert not log.exists()


def test_a_log_is_not_written_where_others_can_write(tmp_path, run_dir):
    run_dir.mkdir()
    (run_dir / "logs").mkdir()
    run_dir.chmod(0o700)
    (run_dir / "logs").chmod(0o777)
    result = invoke("run", "-d", program(tmp_path, DRIVER), "FINISHED")
    assert result.exit_code == 5
    assert "mode 0777" in result.stderr
