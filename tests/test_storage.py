"""A file is there whole or not at all, and nothing but what was written is ever read."""

import hashlib
import json
import os
import stat
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from efattn import storage
from efattn.errors import ModelFileError

TENSORS = {"a": torch.arange(12.0).reshape(3, 4), "b.c": torch.tensor([1, 2, 3]), "empty": torch.zeros(0, 2)}
ABOUT = {"name": 'a "quoted" näme ', "list": [1, 2.5, None, True], "sha256": "0" * 64}


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "x.efattn"
    storage.write(file, "model", ABOUT, TENSORS)
    return file


def sealed(header: bytes, tensors: bytes = b"") -> bytes:
    """A file with a correct checksum, whatever its header says; the header has the blank seal in it."""
    data = struct.pack("<Q", len(header)) + header + tensors
    digest = hashlib.sha256(data).hexdigest().encode()
    return data.replace(b'"sha256":"' + storage.BLANK, b'"sha256":"' + digest, 1)


def header(text: str, **more: object) -> bytes:
    return json.dumps({"__metadata__": {"efattn": text, "sha256": "0" * 64}, **more}, separators=(",", ":")).encode()


def edited(path, change):
    """The file with its JSON as `change` leaves it, sealed again: what a checksum cannot find."""
    data = path.read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    outer = json.loads(data[8:end])
    about = json.loads(outer["__metadata__"]["efattn"])
    about = change(about) or about
    outer["__metadata__"] = {"efattn": about if isinstance(about, str) else json.dumps(about), "sha256": "0" * 64}
    path.write_bytes(sealed(json.dumps(outer, separators=(",", ":")).encode(), data[end:]))
    return path


def test_what_is_written_is_read(path):
    about, tensors = storage.read(path, "model")
    assert {key: about[key] for key in ABOUT} == ABOUT
    assert tensors.keys() == TENSORS.keys()
    for name, x in TENSORS.items():
        assert tensors[name].dtype == x.dtype
        assert torch.equal(tensors[name], x)


def test_tensors_that_are_views_are_written_as_they_look(tmp_path):
    x = torch.arange(12.0).reshape(3, 4)
    storage.write(tmp_path / "x", "model", {}, {"turned": x.T, "part": x[1:], "grad": x.clone().requires_grad_()})
    tensors = storage.read(tmp_path / "x", "model")[1]
    assert torch.equal(tensors["turned"], x.T)
    assert torch.equal(tensors["part"], x[1:])


def test_a_flipped_byte_is_always_found(path, tmp_path):
    data, draw = path.read_bytes(), np.random.default_rng(0)
    broken = tmp_path / "broken.efattn"
    for at in draw.permutation(len(data))[:300]:
        changed = bytearray(data)
        changed[at] ^= int(draw.integers(1, 256))
        broken.write_bytes(bytes(changed))
        with pytest.raises(ModelFileError, match=r"broken\.efattn"):
            storage.read(broken, "model")


def test_a_cut_is_always_found(path, tmp_path):
    data, draw = path.read_bytes(), np.random.default_rng(1)
    broken = tmp_path / "broken.efattn"
    for length in [0, 1, 7, 8, 9, len(data) - 1, *draw.integers(0, len(data), 200).tolist()]:
        broken.write_bytes(data[:length])
        with pytest.raises(ModelFileError, match=r"broken\.efattn"):
            storage.read(broken, "model")
    broken.write_bytes(data + b"x")
    with pytest.raises(ModelFileError, match="checksum"):
        storage.read(broken, "model")


def test_another_kind_is_refused_by_name(path):
    with pytest.raises(ModelFileError, match="is an efattn model, not a checkpoint"):
        storage.read(path, "checkpoint")


@pytest.mark.parametrize("version", [2, 10**30, 0, -1, "1", None, 1.0])
def test_another_format_is_refused(tmp_path, version):
    file = tmp_path / "x"
    file.write_bytes(sealed(header(json.dumps({"format": version, "kind": "model"}))))
    with pytest.raises(ModelFileError, match="format"):
        storage.read(file, "model")


def test_a_newer_format_says_to_install_a_newer_one(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "VERSION", 2)
    storage.write(tmp_path / "x", "model", {}, {})
    monkeypatch.undo()
    with pytest.raises(ModelFileError, match=r"format 2, this efattn reads up to 1\. Install a newer one"):
        storage.read(tmp_path / "x", "model")


@pytest.mark.parametrize(
    "content",
    [b"", b"a,b\n1,2\n", bytes(range(256)) * 40, b"\x00" * 100, b"PK\x03\x04" + b"x" * 100, b"\x80\x04\x95" * 40],
    ids=["empty", "text", "bytes", "zeros", "zip", "pickle"],
)
def test_what_is_no_model_at_all_is_refused(tmp_path, content):
    file = tmp_path / "x.efattn"
    file.write_bytes(content)
    why = "not an efattn file, or its beginning is damaged" if content else "not an efattn file: it is empty"
    with pytest.raises(ModelFileError, match=rf"{why}\. Name one that a fit wrote, or take another copy"):
        storage.read(file, "model")


def test_random_bytes_are_refused(tmp_path):
    draw, file = np.random.default_rng(2), tmp_path / "x"
    for _ in range(100):
        file.write_bytes(draw.bytes(int(draw.integers(0, 2000))))
        with pytest.raises(ModelFileError):
            storage.read(file, "model")


def test_a_plain_safetensors_file_is_refused(tmp_path):
    save_file({"a": torch.zeros(2)}, tmp_path / "x.safetensors", {"format": "pt"})
    with pytest.raises(ModelFileError, match="not an efattn file"):
        storage.read(tmp_path / "x.safetensors", "model")


def test_a_folder_and_nothing_at_all_are_refused(tmp_path):
    with pytest.raises(ModelFileError, match=r"cannot be read: Is a directory. Name a file in it"):
        storage.read(tmp_path, "model")
    with pytest.raises(ModelFileError, match=r"There is no file .*Check the path"):
        storage.read(tmp_path / "absent", "model")
    with pytest.raises(ModelFileError, match="cannot be read"):
        storage.read("a\0b", "model")


@pytest.mark.parametrize("size", [0, 1, 2**20, 2**40, 2**63, 2**64 - 1])
def test_a_header_that_lies_about_its_length_is_refused(path, size):
    path.write_bytes(struct.pack("<Q", size) + path.read_bytes()[8:])
    with pytest.raises(ModelFileError):
        storage.read(path, "model")


GOOD = '{"format":1,"kind":"model"}'


@pytest.mark.parametrize(
    "data",
    [
        sealed(header("[" * 100_000)),
        sealed(header('{"format":1,"kind":"model","x":' + "[" * 100_000 + "]" * 100_000 + "}")),
        sealed(header(GOOD)[:-1] + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        sealed(header("[1]")),
        sealed(header('"text"')),
        sealed(header("null")),
        sealed(header("{}")),
        sealed(b'{"__metadata__":[],"x":{"sha256":"' + storage.BLANK + b'"}}'),
        sealed(b'["sha256":"' + storage.BLANK + b'"]'),
        sealed(header(GOOD, a={"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]})),
        sealed(header(GOOD, a={"dtype": "F32", "shape": [2**32, 2**32], "data_offsets": [0, 0]})),
        sealed(header(GOOD, a={"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}), b"12345678"),
        sealed(header(GOOD, a={"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}), b"12345678"),
        sealed(header(GOOD, a={"dtype": "NONE", "shape": [2], "data_offsets": [0, 8]}), b"12345678"),
        sealed(header(GOOD, a=7)),
        sealed(header(GOOD), b"left over"),
        sealed(header('{"format":1,"kind":"model","x":NaN}')),
        sealed(header('{"format":1,"kind":"model","x":-Infinity}')),
        sealed(header('{"format":1,"kind":"model","x":1e999}')),
        sealed(header('{"format":1,"kind":"model","x":' + "9" * 5000 + "}")),
        sealed(header('{"format":1,"kind":"model","x":1,"x":2}')),
        sealed(header('{"format":1,"kind":"model","x":' + "[" * 100 + "]" * 100 + "}")),
        sealed(header('{"format":true,"kind":"model"}')),
        sealed(header('{"format":1}')),
        sealed(header('{"format":1,"kind":["model"]}')),
        sealed(header(GOOD)[:-1] + b',"__metadata__":{"efattn":"{}"}}'),
        sealed(b"\xff" + header(GOOD)),
    ],
)
def test_hostile_files_with_a_correct_checksum_are_refused(tmp_path, data):
    file = tmp_path / "x"
    file.write_bytes(data)
    with pytest.raises(ModelFileError):
        storage.read(file, "model")
    if b"dtype" not in data and b'"a":7' not in data and not data.endswith(b"left over"):
        with pytest.raises(ModelFileError):
            storage.about(file, "model")


def test_the_hostile_files_are_sealed_correctly(tmp_path):
    file = tmp_path / "x"
    file.write_bytes(sealed(header(GOOD, a={"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}), bytes(8)))
    assert storage.read(file, "model")[1]["a"].tolist() == [0, 0]


@pytest.mark.parametrize("broken", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "stop"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(path, monkeypatch, broken, error):
    before = path.read_bytes()

    def fail(*_):
        raise error

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises((ModelFileError, KeyboardInterrupt)) as told:
        storage.write(path, "model", {"other": 1}, {"a": torch.zeros(1000)})
    monkeypatch.undo()
    if isinstance(error, OSError):
        assert "No space left on device" in str(told.value)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_what_json_cannot_hold_is_refused_before_anything_is_written(path):
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        storage.write(path, "model", {"x": float("nan")}, {})
    assert path.read_bytes() == before
    assert len(list(path.parent.iterdir())) == 1


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    with pytest.raises(ModelFileError, match=r"absent/x.* cannot be written: No such file or directory"):
        storage.write(tmp_path / "absent" / "x", "model", {}, {})
    with pytest.raises(ModelFileError, match="cannot be written: Is a directory"):
        storage.write(tmp_path, "model", {}, {})
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelFileError, match="cannot be written: Not a directory"):
        storage.write(tmp_path / "file" / "x", "model", {}, {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do anything")
def test_permissions_are_named(path):
    path.parent.chmod(0o500)
    try:
        with pytest.raises(ModelFileError, match="cannot be written: Permission denied"):
            storage.write(path, "model", {}, {})
    finally:
        path.parent.chmod(0o700)
    path.chmod(0)
    with pytest.raises(ModelFileError, match="cannot be read: Permission denied"):
        storage.read(path, "model")


def test_denied_permissions_are_clear_whoever_runs_this(path, monkeypatch):
    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    with pytest.raises(ModelFileError, match=r"x\.efattn' cannot be written: Permission denied"):
        storage.write(path, "model", {}, {})


# ---- the JSON alone


def test_what_a_file_says_about_itself_is_had_without_torch(path):
    code = f"""
import sys
from efattn import storage
about = storage.about({str(path)!r}, "model")
assert about["list"] == [1, 2.5, None, True]
storage.try_path({str(path)!r})
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert storage.about(path, "model") == storage.read(path, "model")[0]


def test_a_flipped_byte_and_a_cut_are_found_in_the_json_alone_too(path):
    data, draw = path.read_bytes(), np.random.default_rng(3)
    for at in draw.permutation(len(data))[:100]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(ModelFileError):
            storage.about(path, "model")
        path.write_bytes(data[:at])
        with pytest.raises(ModelFileError):
            storage.about(path, "model")
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="not a checkpoint"):
        storage.about(path, "checkpoint")


def test_an_edited_file_is_read_as_it_was_sealed(path):
    edited(path, lambda about: about.update(name="other"))
    about, tensors = storage.read(path, "model")
    assert about["name"] == "other"
    assert torch.equal(tensors["a"], TENSORS["a"])
    edited(path, lambda about: "{}")
    with pytest.raises(ModelFileError, match="not an efattn file"):
        storage.read(path, "model")


def test_what_could_not_be_read_again_is_not_written(path):
    deep: list = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(ValueError, match="JSON"):
        storage.write(path, "model", {"x": deep}, {})
    assert storage.read(path, "model")[0]["list"] == ABOUT["list"]


@pytest.mark.parametrize("wrong", [None, 5, ["a"], b"a\0b", "a\0b", ""])
def test_what_is_no_path_is_refused(wrong):
    for use in (storage.read, storage.about, lambda path, kind: storage.write(path, kind, {}, {})):
        with pytest.raises(ModelFileError):
            use(wrong, "model")
    with pytest.raises(ModelFileError):
        storage.try_path(wrong)


# ---- writing beside a file


def test_many_threads_writing_to_one_path_never_damage_it(path):
    wrong: list[Exception] = []

    def write(number):
        try:
            for _ in range(15):
                storage.write(path, "model", {"number": number}, {"a": torch.full((5000,), float(number))})
                about, tensors = storage.read(path, "model")
                assert (tensors["a"] == about["number"]).all()
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_link_stays_one_and_permissions_stay(path):
    link = path.with_name("link.efattn")
    link.symlink_to(path.name)
    path.chmod(0o640)
    storage.write(link, "model", {"new": 1}, {})
    assert link.is_symlink()
    assert storage.read(path, "model")[0]["new"] == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o400)
    with storage.beside(path) as part:
        part.write_text("x")
        assert stat.S_IMODE(part.stat().st_mode) == 0o600, "nobody else reads it meanwhile"
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    path.unlink()
    storage.write(link, "model", {"new": 2}, {})
    assert storage.read(path, "model")[0]["new"] == 2, "a link to nothing yet"


def test_what_is_no_plain_file_is_never_replaced_nor_read_without_end(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ModelFileError, match="It is not a plain file"):
        storage.write(pipe, "model", {}, {})
    with pytest.raises(ModelFileError, match="It is not a plain file"):
        storage.try_path(pipe)
    assert pipe.is_fifo()
    for use in (storage.read, storage.about):
        with pytest.raises(ModelFileError, match="it is a device"):
            use("/dev/null", "model")


def test_parts_that_a_killed_process_left_are_swept_and_others_are_not(path):
    program = f"""
import os, signal, sys
from efattn import storage
with storage.beside({str(path)!r}) as part:
    part.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False)
    other = path.with_name("y.efattn")
    subprocess.run([sys.executable, "-c", program.replace(path.name, other.name)], check=False)
    (left,), (theirs,) = storage.parts(path), storage.parts(other)
    elsewhere = left.with_name(left.name.replace(storage.HOST, "0" * 8))
    elsewhere.write_text("written on another machine, perhaps right now")
    old = path.with_name(f".{path.name}.7.part")
    old.write_text("from long ago")
    os.utime(old, (1e9, 1e9))
    with storage.beside(path) as part:
        part.write_text("new")
        with storage.beside(path) as second:
            second.write_text("newer")
        assert set(storage.parts(path)) == {elsewhere, part}
    assert set(path.parent.iterdir()) == {path, elsewhere, theirs}


def test_the_longest_name_that_a_file_can_have_can_be_written(tmp_path):
    for name in ("n" * 255, "ä" * 127):
        storage.try_path(tmp_path / name)
        storage.write(tmp_path / name, "model", ABOUT, TENSORS)
        assert storage.read(tmp_path / name, "model")[0]["list"] == ABOUT["list"]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_path_is_tried_before_anything_is_computed(path, monkeypatch):
    before = path.read_bytes()
    storage.try_path(path)
    storage.try_path(path.with_name("new"))
    assert path.read_bytes() == before
    folder = path.parent
    for wrong, words in {
        folder / ("n" * 256): "File name too long. Choose a shorter name",
        folder / "absent" / "x": "No such file or directory. Make its folder first",
        path / "x": "Not a directory",
        folder: "Is a directory. Name a file in it",
    }.items():
        with pytest.raises(ModelFileError, match=f"cannot be written: {words}"):
            storage.try_path(wrong)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelFileError, match=r"No space left on device\. Make room"):
        storage.try_path(path)
    assert list(folder.iterdir()) == [path]
