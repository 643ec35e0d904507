"""A file is there whole or not at all, and nothing but what was written is ever read."""

import hashlib
import json
import os
import struct

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
    return data.replace(storage.BLANK, hashlib.sha256(data).hexdigest().encode(), 1)


def header(text: str, **more: object) -> bytes:
    return json.dumps({"__metadata__": {"efattn": text, "sha256": "0" * 64}, **more}, separators=(",", ":")).encode()


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
    with pytest.raises(ModelFileError, match="not an efattn file"):
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
    with pytest.raises(ModelFileError, match="cannot be read: Is a directory"):
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
    ],
)
def test_hostile_files_with_a_correct_checksum_are_refused(tmp_path, data):
    file = tmp_path / "x"
    file.write_bytes(data)
    with pytest.raises(ModelFileError):
        storage.read(file, "model")


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
