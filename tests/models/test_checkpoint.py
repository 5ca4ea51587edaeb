"""Checkpoint files: round trips, names, and files that are not whole or not ours."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from models import (
    CheckpointInfo,
    CountLensError,
    TransformerConfig,
    build_counter,
    find,
    load_counter,
    read_info,
    save_counter,
)
from models.config import POSITION_NAMES
from models.files import atomic_path
from models.find import find_checkpoint


@pytest.fixture
def counter(generator: torch.Generator) -> torch.nn.Module:
    return build_counter(TransformerConfig(13, "ape", n_layers=3), generator).eval()


@pytest.mark.parametrize("position", POSITION_NAMES)
def test_a_saved_counter_comes_back(tmp_path: Path, position: str, generator: torch.Generator) -> None:
    counter = build_counter(TransformerConfig(13, position, n_layers=3, causal=False), generator).eval()
    save_counter(tmp_path / "model.safetensors", counter, CheckpointInfo("", {}, seed=5, scores={"ind": 99.5}))
    loaded = load_counter(tmp_path)
    assert loaded.cfg == counter.cfg
    assert loaded.info.seed == 5
    assert loaded.info.scores == {"ind": 99.5}
    assert not loaded.training
    token_ids, position_ids = torch.arange(13)[None], torch.arange(13)[None] + 100
    expected = counter(token_ids, position_ids)
    torch.testing.assert_close(loaded(token_ids, position_ids), expected, atol=1e-6, rtol=1e-5)


def test_the_file_is_in_the_interchange_format(tmp_path: Path, counter: torch.nn.Module) -> None:
    path = tmp_path / "model.safetensors"
    save_counter(path, counter)
    info = read_info(path)
    assert info.transformer_lens["n_ctx"] == 128
    from safetensors.torch import load_file

    state = load_file(path)
    assert set(state) == set(counter.state_dict()) | {"unembed.b_U"}
    assert state["blocks.0.attn.W_Q"].shape == (4, 64, 16)
    torch.testing.assert_close(state["blocks.2.attn.W_Q"], counter.blocks[2].attn.W_Q.detach() / 3)


def test_which_hooks_are_switched_on_is_not_saved(tmp_path: Path, counter: torch.nn.Module) -> None:
    counter.set_use_attn_result(True)
    save_counter(tmp_path / "model.safetensors", counter)
    assert load_counter(tmp_path).cfg.use_attn_result is False


def test_a_file_cut_anywhere_is_called_truncated(tmp_path: Path, counter: torch.nn.Module) -> None:
    path = tmp_path / "model.safetensors"
    save_counter(path, counter)
    whole = path.read_bytes()
    for kept in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        with pytest.raises(CountLensError, match="truncated"):
            load_counter(path)


def test_foreign_files_are_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(CountLensError, match="no CountLens checkpoint"):
        load_counter(path)
    for content in (
        b"PK\x03\x04 a pickle in a zip file, as torch.save writes it",
        b"{}" * 50,
        b"hello world, a text",
    ):
        path.write_bytes(content)
        with pytest.raises(CountLensError, match="no safetensors file"):
            load_counter(path)
    path.write_bytes(b"\x02\x00\x00\x00\x00\x00\x00\x00{}")
    with pytest.raises(CountLensError, match="no CountLens checkpoint"):
        load_counter(path)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ("not json", "cannot be read"),
        (json.dumps({"format_version": 99}), "format version 99"),
        (json.dumps({"format_version": 1, "family": "transformer", "model": {}, "shoe": 1}), "does not fit"),
        (json.dumps({"format_version": 1, "family": "transfomer", "model": {}}), "did you mean transformer"),
        (
            json.dumps({"format_version": 1, "family": "transformer", "model": {"d": 1}}),
            "no settings of the family",
        ),
        (
            json.dumps({"format_version": 1, "family": "transformer", "model": {"d_vocab": 5}}),
            "lacks the tensor",
        ),
    ],
)
def test_metadata_that_does_not_fit_is_refused(tmp_path: Path, metadata: str, message: str) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"x": torch.zeros(2)}, path, {"countlens": metadata})
    with pytest.raises(CountLensError, match=message):
        load_counter(path)


def test_names_are_found_and_near_ones_suggested(
    tmp_path: Path, counter: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_counter(tmp_path / "runs/odd/ape-2L/seed0/model.safetensors", counter)
    assert find_checkpoint("odd/ape-2L/seed0") == Path("runs/odd/ape-2L/seed0/model.safetensors")
    with pytest.raises(CountLensError, match="did you mean odd/ape-2L/seed0"):
        load_counter("odd/ape-2L/seed1")
    with pytest.raises(CountLensError, match=r"holds no model\.safetensors"):
        load_counter(tmp_path)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def write_until_the_disk_is_full() -> None:
        with atomic_path(path) as unfinished:
            unfinished.write_text("half of the new")
            raise OSError(28, "No space left on device")

    with pytest.raises(CountLensError, match=r"No space left on device \(free some space; whatever was saved before"):
        write_until_the_disk_is_full()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_may_leave_out_the_seed_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "RUNS", tmp_path)
    for name in ("odd/one-2L/seed7", "odd/two-2L/seed0", "odd/two-2L/seed1"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "model.safetensors").touch()
    assert find.find_checkpoint("odd/one-2L") == tmp_path / "odd/one-2L/seed7/model.safetensors"
    with pytest.raises(CountLensError, match="name one of odd/two-2L/seed0, odd/two-2L/seed1"):
        find.find_checkpoint("odd/two-2L")
