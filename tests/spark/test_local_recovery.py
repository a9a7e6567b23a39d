"""Local recovery on Spark: slots die, the newest checkpoint is damaged, and nothing is lost."""

from __future__ import annotations

import re
import signal
import threading

import pytest
from tests.spark.scenario import Scenario, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


class Damage(threading.Thread):
    """Flips a bit in every state file of the newest checkpoint once a slot was killed.

    The marker of the failpoint is made right before the kill. A checkpoint that is completed a
    moment later is damaged too, until there is another attempt.
    """

    def __init__(self, scenario, marker):
        super().__init__(daemon=True)
        self._scenario = scenario
        self._marker = marker
        self._over = threading.Event()
        self.damaged = []

    def run(self):
        while not self._over.wait(0.002):
            if self._marker.exists():
                self._damage_newest()

    def _damage_newest(self):
        for path in newest_files(self._scenario):
            if path in self.damaged or "-a0-" not in path.name:
                continue
            with path.open("r+b") as file:
                file.seek(path.stat().st_size // 2)
                byte = file.read(1)
                file.seek(-1, 1)
                file.write(bytes([byte[0] ^ 1]))
            self.damaged.append(path)

    def end(self):
        self._over.set()
        self.join()


def newest_files(scenario):
    done = [path.parent for path in scenario.checkpoints.glob("*/chk-*/_metadata")]
    newest = max(done, key=lambda path: int(path.name.split("-")[1]), default=None)
    return [] if newest is None else sorted(newest.glob("state-*"))


def test_a_killed_slot_and_a_damaged_newest_checkpoint_lose_nothing(tmp_path):
    scenario = Scenario(tmp_path)
    scenario.write_input()
    copies = tmp_path / "copies"
    scenario.configure(
        {
            "state.backend.local-recovery": "true",
            "taskmanager.state.local.root-dirs": str(copies),
            "execution.checkpointing.data-inline-threshold": "0",
        }
    )
    marker = tmp_path / "slot.committed"
    damage = Damage(scenario, marker)
    damage.start()
    # Its output is committed, so that nobody may go back to an older one.
    code, output = scenario.run(failpoints=f"slot.committed={marker}@3")
    damage.end()
    assert code == 0, output
    assert damage.damaged
    scenario.assert_exact()
    assert "is restored with local copies" in output
    assert "falling back" not in output
    assert int(re.findall(r"^attempts (\d+)$", output, re.MULTILINE)[-1]) == 2
    logs = "".join(path.read_text() for path in scenario.logs.rglob("*.log"))
    name = re.escape(damage.damaged[-1].name)
    assert re.search(rf"state file '\S*{name}' is damaged .*copy '{copies}\S*{name}'", logs)
    assert list(copies.iterdir()) == []


def test_the_copies_of_a_killed_driver_are_removed_by_its_slots(tmp_path):
    scenario = Scenario(tmp_path)
    scenario.write_input()
    copies = tmp_path / "copies"
    scenario.configure(
        {
            "state.backend.local-recovery": "true",
            "execution.checkpointing.local-backup.dirs": str(copies),
        }
    )
    marker = tmp_path / "driver.metadata"
    code, output = scenario.run(failpoints=f"driver.metadata={marker}@2")
    assert code == -signal.SIGKILL, output
    wait_until(lambda: not scenario.slots(), 15, "slots of a dead driver leaving")
    assert copies.is_dir()
    assert list(copies.iterdir()) == []
