"""Checkpoint files: round trips, names, and files that are not whole or not ours."""

import contextlib
import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

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
from models.atomic import atomic_path
from models.find import find_checkpoint
from models.header import read_metadata
from models.schemes import SCHEMES


@pytest.fixture
def counter(generator: torch.Generator) -> torch.nn.Module:
    return build_counter(TransformerConfig(13, "ape", n_layers=3), generator).eval()


@pytest.mark.parametrize("position", SCHEMES)
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


@pytest.mark.parametrize("position", ["rope", "sine"])
def test_periods_are_stored_and_a_file_without_them_has_no_trace_of_them(
    tmp_path: Path, position: str, generator: torch.Generator
) -> None:
    tuned = build_counter(TransformerConfig(13, position, init_std=0.3, periods=(10.0, 20.5)), generator).eval()
    save_counter(tmp_path / "model.safetensors", tuned)
    loaded = load_counter(tmp_path)
    assert loaded.cfg.periods == (10.0, 20.5)
    token_ids, position_ids = torch.arange(13)[None], torch.arange(13)[None] + 30
    torch.testing.assert_close(loaded(token_ids, position_ids), tuned(token_ids, position_ids), atol=1e-5, rtol=1e-5)
    save_counter(tmp_path / "usual.safetensors", build_counter(TransformerConfig(13, position), generator))
    assert b"periods" not in (tmp_path / "usual.safetensors").read_bytes()


@pytest.mark.parametrize("periods", [[], [0.0], ["10"], [[10]], "10", [10.0] * 9, [1e300]])
def test_periods_that_make_no_sense_are_refused_on_loading(
    tmp_path: Path, periods: object, generator: torch.Generator
) -> None:
    path = tmp_path / "model.safetensors"
    save_counter(path, build_counter(TransformerConfig(13, "rope"), generator))
    info = json.loads(read_metadata(path)["countlens"])
    info["model"]["periods"] = periods
    save_file(load_file(path), path, {"countlens": json.dumps(info)})
    with pytest.raises(CountLensError, match="periods"):
        load_counter(path)


def test_the_file_is_in_the_interchange_format(tmp_path: Path, counter: torch.nn.Module) -> None:
    path = tmp_path / "model.safetensors"
    save_counter(path, counter)
    info = read_info(path)
    assert info.transformer_lens["n_ctx"] == 128
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": None}, "scores = None: must be dict"),
        ({"scores": {"ind": "x"}}, "must be float at 'ind'"),
        ({"scores": {"ind": 200}}, "must be at least 0 and at most 100 at 'ind'"),
        ({"task": {}}, r"task\.name=None: must be str"),
        ({"task": []}, r"task = \[\]: must be dict"),
        ({"task": {"name": "mod10", "bos": "yes"}}, r"task\.bos='yes': must be bool"),
        ({"task": {"name": "mod10", "ood_length": 10**9}}, r"task\.ood_length=1000000000: must be at least 1"),
        ({"model": None}, "model = None: must be dict"),
        ({"model": {"d_vocab": 13, "n_layers": "x"}}, "n_layers = 'x': must be int"),
        ({"model": {"d_vocab": 13, "n_layers": 10**9}}, "n_layers = 1000000000: must be at least 1 and at most 256"),
        ({"model": {"d_vocab": 13, "max_position": 30_000_000}}, "max_position = 30000000: must be at least 1 and at"),
        ({"model": {"d_vocab": 13, "max_position": 2**16, "d_model": 2**14}}, "make a table of more than"),
        ({"model": {"d_vocab": 13, "eps": -1}}, "eps = -1: must be above 0 and at most 1"),
        ({"family": 3}, "family = 3: must be str"),
        ({"seed": -1}, "seed = -1: must be at least 0"),
        ({"step": 1.5}, r"step = 1\.5: must be int"),
        ({"policy": ["shifted"]}, r"policy = \['shifted'\]: must be str"),
        ({"training": 1}, "training = 1: must be dict"),
        ({"format_version": [1]}, r"format version \[1\]"),
    ],
)
def test_metadata_of_wrong_types_and_ranges_is_refused_when_it_is_read(
    tmp_path: Path, counter: torch.nn.Module, changes: dict[str, Any], message: str
) -> None:
    path = tmp_path / "model.safetensors"
    save_counter(path, counter)
    rewrite(path, changes)
    for read in (read_info, load_counter):
        with pytest.raises(CountLensError, match=message):
            read(path)


def rewrite(path: Path, changes: dict[str, Any] | None = None, **tensors: torch.Tensor) -> None:
    """Writes a checkpoint again with other metadata or tensors."""
    with safe_open(path, "pt") as file:
        values = json.loads(file.metadata()["countlens"])
    save_file(load_file(path) | tensors, path, {"countlens": json.dumps(values | (changes or {}))})


def test_deep_nesting_in_the_header_or_the_metadata_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    deep = b'{"x":' + b"[" * 200_000
    path.write_bytes(len(deep).to_bytes(8, "little") + deep)
    with pytest.raises(CountLensError, match="no safetensors file"):
        read_info(path)
    save_file({"x": torch.zeros(2)}, path, {"countlens": "[" * 200_000})
    with pytest.raises(CountLensError, match="metadata cannot be read"):
        read_info(path)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"max_position": 2**16, "d_model": 256}, "do not fit its own config"),
        ({"n_layers": 256}, "lacks the tensor"),
        ({"d_mlp": 2**16}, "do not fit its own config: .* has the shape"),
        ({"d_model": 2**14, "d_mlp": 2**16, "d_vocab": 2**17}, "do not fit its own config"),
        ({"n_layers": 2}, "has a tensor 'blocks.2"),
    ],
)
def test_sizes_that_the_metadata_claims_take_no_memory(
    tmp_path: Path, counter: torch.nn.Module, model: dict[str, int], message: str
) -> None:
    path = tmp_path / "model.safetensors"
    save_counter(path, counter)
    rewrite(path, {"model": read_info(path).model | model})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CountLensError, match=message):
        load_counter(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, counter: torch.nn.Module, bad: float) -> None:
    path = tmp_path / "model.safetensors"
    save_counter(path, counter)
    weight = counter.unembed.W_U.detach().clone()
    weight[-1, -1] = bad
    rewrite(path, **{"unembed.W_U": weight})
    with pytest.raises(CountLensError, match=r"unembed\.W_U holds numbers that are not finite.*lower its lr"):
        load_counter(path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_weights_of_another_dtype_are_refused(tmp_path: Path, counter: torch.nn.Module, dtype: torch.dtype) -> None:
    path = tmp_path / "model.safetensors"
    save_counter(path, counter)
    rewrite(path, **{"unembed.W_U": counter.unembed.W_U.detach().to(dtype)})
    with pytest.raises(CountLensError, match=r"unembed\.W_U is stored as \w+: counters are stored as F32"):
        load_counter(path)


def test_a_pipe_is_no_checkpoint(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(CountLensError, match="no regular file"):
        read_info(tmp_path / "model.safetensors")


def test_snapshots_are_the_files_with_a_step_in_their_name(tmp_path: Path) -> None:
    (tmp_path / "snapshots").mkdir()
    for name in ("step-0000007", "step-0000000", "step-final", "step-", "step-1e3", "step-" + "9" * 5000):
        with contextlib.suppress(OSError):  # a name may be too long for the disk
            (tmp_path / "snapshots" / f"{name}.safetensors").touch()
    found = find.find_snapshots(tmp_path).by_step
    assert {step: path.stem for step, path in found.items()} == {0: "step-0000000", 7: "step-0000007"}
    assert list(found) == [0, 7]


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
