"""The state of a run on disk: what is not sound is refused before anything is restored."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save

from models.checkpoint import save_counter
from models.errors import CountLensError
from models.families import FAMILIES, build_counter
from models.header import CheckpointInfo
from models.schemes import SCHEMES
from training.config import ModelOptions, RunConfig, TrainConfig
from training.presets import model_config, resolve
from training.run.folder import RunFolder
from training.run.loop import Trainer, replace_scores
from training.run.state import TrainState, fingerprint, read_state, write_state

ARCHITECTURES = [("transformer", scheme) for scheme in SCHEMES] + [
    (family, None) for family in FAMILIES if family != "transformer"
]


@pytest.fixture
def state() -> TrainState:
    tensors = {
        "model.w": torch.arange(6.0).view(2, 3),
        "optimiser.0.step": torch.tensor(3.0),
        "generator": torch.ones(9),
    }
    return TrainState(3, 1.25, {"step": 2, "ind": 50.0, "ood": 25.0}, {"model.safetensors": "abc"}, tensors)


def same(one: TrainState, other: TrainState) -> bool:
    scalars = replace(one, tensors={}) == replace(other, tensors={}) and one.tensors.keys() == other.tensors.keys()
    return scalars and all(torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items())


def test_a_state_reads_back_as_it_was_written(tmp_path: Path, tiny: RunConfig, state: TrainState) -> None:
    write_state(tmp_path / "state", state, tiny)
    assert same(read_state(tmp_path / "state", tiny, state.tensors), state)


def test_no_damaged_byte_goes_unnoticed(tmp_path: Path, tiny: RunConfig, state: TrainState) -> None:
    path, chance = tmp_path / "state", random.Random(0)
    write_state(path, state, tiny)
    sound, refused = path.read_bytes(), 0
    for position in range(0, len(sound), 3):
        path.write_bytes(sound[:position] + bytes([sound[position] ^ chance.randint(1, 255)]) + sound[position + 1 :])
        try:
            assert same(read_state(path, tiny, state.tensors), state), position
        except CountLensError:
            refused += 1
    assert refused >= 0.99 * len(range(0, len(sound), 3))
    for length in range(0, len(sound), 50):
        path.write_bytes(sound[:length])
        with pytest.raises(CountLensError):
            read_state(path, tiny)


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("model.w", torch.zeros(2, 2), r"model\.w is torch\.float32 \[2, 2\], the run needs torch\.float32 \[2, 3\]"),
        ("model.w", torch.zeros(2, 3, dtype=torch.float64), r"model\.w is torch\.float64 \[2, 3\], the run needs"),
        ("optimiser.0.step", None, r"optimiser\.0\.step is missing"),
        ("optimiser.7.step", torch.zeros(()), r"optimiser\.7\.step is .*the run needs none"),
    ],
)
def test_tensors_that_do_not_fit_the_run_are_named(
    tmp_path: Path, tiny: RunConfig, state: TrainState, name: str, tensor: torch.Tensor | None, message: str
) -> None:
    tensors = {key: value for key, value in (state.tensors | {name: tensor}).items() if value is not None}
    write_state(tmp_path / "state", replace(state, tensors=tensors), tiny)
    with pytest.raises(CountLensError, match=message):
        read_state(tmp_path / "state", tiny, state.tensors)


def test_a_file_that_claims_more_than_it_holds_is_no_state(tmp_path: Path, tiny: RunConfig, state: TrainState) -> None:
    path = tmp_path / "state"
    with path.open("wb") as file:
        file.truncate(2**36)  # 64 GB of holes, which must not be mapped into memory
    with pytest.raises(CountLensError, match="is not a safetensors file"):
        read_state(path, tiny)
    write_state(path, state, tiny)
    with path.open("ab") as file:
        file.write(b"x")
    with pytest.raises(CountLensError, match="is damaged: it has 1 bytes too many"):
        read_state(path, tiny)


def test_a_state_of_other_settings_or_without_a_checksum_is_refused(
    tmp_path: Path, tiny: RunConfig, state: TrainState
) -> None:
    write_state(tmp_path / "state", state, tiny)
    with pytest.raises(CountLensError, match=r"other settings than those in config\.json"):
        read_state(tmp_path / "state", replace(tiny, seed=5))
    (tmp_path / "state").write_bytes(save(state.tensors, {"state": "{}"}))
    with pytest.raises(CountLensError, match="its checksum does not match"):
        read_state(tmp_path / "state", tiny)


@pytest.mark.parametrize(("family", "scheme"), ARCHITECTURES)
def test_the_state_of_every_architecture_has_the_layout_that_is_checked(
    tmp_path: Path, tiny_options: TrainConfig, family: str, scheme: str | None
) -> None:
    model = ModelOptions(family=family, position=scheme, n_layers=1, d_model=8)
    config = resolve(replace(tiny_options, model=model))
    trainer = Trainer(RunFolder.create(tmp_path / "run", config))
    trainer.advance()
    trainer.save_state()
    assert Trainer(RunFolder(tmp_path / "run")).step == 1


def test_a_fingerprint_is_of_everything_but_the_scores(tmp_path: Path, tiny_options: TrainConfig) -> None:
    """A sine counter: its tensors are stored in another form, and read and written again they would change."""
    config = resolve(replace(tiny_options, model=ModelOptions(position="sine", n_layers=1, d_model=8, n_heads=2)))
    counter = build_counter(model_config(config), torch.Generator().manual_seed(0))
    path, info = tmp_path / "model.safetensors", CheckpointInfo(family="", model={}, step=3)
    save_counter(path, counter, info)
    before, tensors = fingerprint(path), load_file(path)
    replace_scores(path, {"ind": 1.0, "ood": 2.0}, {"ind": 3.0, "ood": 4.0})
    assert fingerprint(path) == before
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in load_file(path).items())
    save_counter(path, counter, replace(info, step=4))
    assert fingerprint(path) != before
    save_counter(path, counter, info)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert fingerprint(path) != before


def test_a_header_that_is_no_text_has_no_fingerprint(tmp_path: Path, tiny: RunConfig) -> None:
    path = tmp_path / "model.safetensors"
    counter = build_counter(model_config(tiny), torch.Generator().manual_seed(0))
    save_counter(path, counter, CheckpointInfo(family="", model={}))
    path.write_bytes(path.read_bytes().replace(b'"dtype":"F32"', b'"dtyp\xf0":"F32"', 1))
    with pytest.raises(CountLensError, match=r"the header of .* cannot be read"):
        fingerprint(path)
