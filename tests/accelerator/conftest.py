"""These tests run in a process of their own, which has the plugin that registers the device: see `device.py`."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves these files alone in every other process."""
    return None if config.pluginmanager.has_plugin("tests.accelerator.device") else True
