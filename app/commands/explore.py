"""`countlens explore`"""

import subprocess
import sys
from pathlib import Path
from socket import gethostname

from app.escape import say
from app.explorer.catalogue import start_folders

LOCALHOST = "localhost"
EVERY_ADDRESS = ("0.0.0.0", "::")
APP = Path(__file__).resolve().parent.parent
SERVER, VISIT = APP / "main.py", APP / "visit.py"  # what is started, and what that runs for every visit


def streamlit_command(
    port: int | None, folders: tuple[Path, ...], browser: bool, address: str = LOCALHOST
) -> list[str]:
    """The command that starts the explorer's server; `app/.streamlit/config.toml` has the default address."""
    options = [] if address == LOCALHOST else ["--server.address", address]
    if address not in (LOCALHOST, *EVERY_ADDRESS):
        options += ["--browser.serverAddress", address]
    options += [] if port is None else ["--server.port", str(port)]
    if not browser:
        options += ["--server.headless", "true"]
    arguments = [part for folder in folders for part in ("--folder", str(folder))]
    return [sys.executable, "-m", "streamlit", "run", str(SERVER), *options, "--", *arguments]


def run_explorer(port: int | None, folders: tuple[Path, ...], browser: bool, address: str) -> None:
    """Serves the explorer until it is stopped."""
    start_folders(folders)  # refuses what is not a folder before the server starts
    if address in EVERY_ADDRESS:
        say(f"everyone in this machine's network can open the explorer, at this machine's name ({gethostname()})")
    say("starting the explorer: its address follows in some seconds")
    sys.exit(subprocess.run(streamlit_command(port, folders, browser, address), check=False).returncode)
