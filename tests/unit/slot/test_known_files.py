"""What a slot tells of the files of its checkpoints: bytes by state, and which are old."""

from weir.slot.known_files import FILES_MAX, FileUse, KnownFiles, keyed_sizes, own_sizes
from weir.snapshot import FileHandle

KEYED = {
    "total": {"groups": {"0": [[0, 10, 1, 3, 0]], "7": [[10, 5, 1, 1, 0], [15, 2, 1, 1, 1]]}},
    "_timer.event": {"groups": {}},
    "_native.rocksdb": {"groups": {}, "tables": []},
}


def handle(name: str, size: int) -> FileHandle:
    return FileHandle(name, size, 0)


def test_a_footer_tells_the_bytes_of_each_state() -> None:
    assert keyed_sizes(KEYED) == {"total": 17, "_timer.event": 0}
    footer = {
        "keyed": KEYED,
        "operator": {"offsets": {"elements": [[0, 4, 1], [4, 6, 1]]}},
        "raw_keyed": {"groups": {"3": [0, 9, 1]}},
    }
    sizes = own_sizes(footer)
    assert (sizes["total"], sizes["offsets"]) == (17, 10)
    assert sorted(sizes.values()) == [0, 9, 10, 17]


def test_files_are_new_in_the_first_checkpoint_that_refers_to_them() -> None:
    known = KnownFiles()
    known.made("a", KEYED)
    known.made("table")
    files = [handle("a", 20), handle("table", 100), handle("table", 100)]
    assert known.use(1, files) == FileUse({"total": 17, "_timer.event": 0}, 100, 0)
    # The same checkpoint again, as by another operator: still new.
    assert known.use(1, files).reused == 0
    known.made("b", KEYED)
    found = known.use(2, [*files, handle("b", 20)])
    assert (found.states["total"], found.other, found.reused) == (34, 100, 120)


def test_files_of_earlier_attempts_are_old() -> None:
    known = KnownFiles()
    known.restored("a", KEYED)
    assert known.use(5, [handle("a", 20)]) == FileUse({"total": 17, "_timer.event": 0}, 0, 20)
    # Nobody has read this one here.
    assert known.use(5, [handle("b", 30)]) == FileUse({}, 30, 30)


def test_only_so_many_files_are_known() -> None:
    known = KnownFiles()
    for number in range(FILES_MAX + 5):
        known.made(str(number))
    assert len(known._files) == FILES_MAX
    assert known.use(1, [handle(str(FILES_MAX), 3)]).reused == 0
