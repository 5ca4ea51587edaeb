"""Shared by all tests: shapes in signatures are checked while the tests run."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from jaxtyping import install_import_hook

install_import_hook(["models", "training", "probes"], "beartype.beartype")

import torch  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    """A source of randomness that is the same in every run."""
    return torch.Generator().manual_seed(0)
