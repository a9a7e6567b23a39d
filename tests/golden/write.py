"""Write the golden files of the current format version: `python -m tests.golden.write`.

Run it for a new version of a format, or for a new file; files of older versions stay. A folder
holds the files that its version changed.
"""

from __future__ import annotations

from pathlib import Path

from tests.golden.contents import WRITERS

from weir.checkpoint.metadata import FORMAT_VERSION
from weir.snapshot import VERSION

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Write every file that the current code knows."""
    for name, write in WRITERS.items():
        folder = HERE / f"v{FORMAT_VERSION if name == '_metadata' else VERSION}"
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(write())


if __name__ == "__main__":
    main()
