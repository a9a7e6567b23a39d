"""Write the golden files of the current format version: `python -m tests.golden.write`.

Run it for a new version of the formats, or for a new file; files of older versions stay.
"""

from __future__ import annotations

from pathlib import Path

from tests.golden.contents import WRITERS

from weir.snapshot import VERSION

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Write every file that the current code knows."""
    folder = HERE / f"v{VERSION}"
    folder.mkdir(exist_ok=True)
    for name, write in WRITERS.items():
        (folder / name).write_bytes(write())


if __name__ == "__main__":
    main()
