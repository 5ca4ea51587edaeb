"""The explorer and the network: it listens on this machine alone unless told otherwise, and asks nobody elsewhere."""

import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.commands.explore import SERVER, streamlit_command

RUN = [sys.executable, "-m", "streamlit", "run"]
ROOT = SERVER.parent.parent


def plain(port: int) -> list[str]:
    """The command of somebody who knows streamlit."""
    return [*RUN, "app/main.py", "--server.headless", "true", "--server.port", str(port)]


def explore(port: int) -> list[str]:
    return streamlit_command(port, (), browser=False)


def explore_everywhere(port: int) -> list[str]:
    return streamlit_command(port, (), browser=False, address="0.0.0.0")


@pytest.mark.parametrize(
    ("command", "folder", "bound"),
    [
        (plain, ROOT, {"localhost"}),
        (explore, Path("/"), {"localhost"}),
        (explore_everywhere, ROOT, {"0.0.0.0", "::"}),
    ],
)
def test_it_listens_where_it_should_and_looks_nothing_up_elsewhere(
    command: Callable[[int], list[str]], folder: Path, bound: set[str], serve: Any, network_log: Any
) -> None:
    with serve(command, network_log, folder) as address:
        urllib.request.urlopen(address).close()
    assert network_log.foreign() == []
    places = set(network_log.places("bind"))
    assert places
    assert places <= bound | {"127.0.0.1"}
    assert places & bound or bound == {"localhost"}


def test_a_look_up_would_be_seen(serve: Any, network_log: Any, tmp_path: Path) -> None:
    """Streamlit without the explorer's configuration asks a service for its address: the log has it."""
    script = tmp_path / "main.py"
    script.write_text("import streamlit as st\n")
    options = ("--server.headless", "true", "--browser.gatherUsageStats", "false", "--server.port")
    with serve(lambda port: [*RUN, str(script), *options, str(port)], network_log, tmp_path):
        pass
    assert network_log.foreign()
    assert set(network_log.places("bind")) & {"0.0.0.0", "::"}


def test_no_usage_is_reported_and_no_details_of_errors_are_shown() -> None:
    code = f"""from streamlit import config
config._main_script_path = {str(SERVER)!r}
config.get_config_options(force_reparse=True)
names = ("browser.gatherUsageStats", "client.showErrorDetails", "server.address", "browser.serverAddress")
print([config.get_option(name) for name in names])
"""
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd="/").stdout
    assert printed == "[False, 'none', 'localhost', 'localhost']\n"


def test_an_address_is_passed_on() -> None:
    def option(name: str, address: str) -> str | None:
        command = streamlit_command(None, (), browser=False, address=address)
        return command[command.index(name) + 1] if name in command else None

    assert option("--server.address", "localhost") is None  # as the configuration has it
    assert option("--server.address", "0.0.0.0") == "0.0.0.0"
    assert option("--browser.serverAddress", "0.0.0.0") is None  # no address to open
    assert option("--browser.serverAddress", "192.0.2.1") == "192.0.2.1"
