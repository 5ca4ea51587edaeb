"""`countlens explore`"""

import subprocess
import sys
from pathlib import Path

from app.explorer.catalogue import start_folders

SCRIPT = Path(__file__).resolve().parent.parent / "main.py"


def streamlit_command(port: int | None, folders: tuple[Path, ...], browser: bool) -> list[str]:
    """The command that starts the explorer's server."""
    options = [] if port is None else ["--server.port", str(port)]
    if not browser:
        options += ["--server.headless", "true"]
    chosen = [part for folder in folders for part in ("--folder", str(folder))]
    return [sys.executable, "-m", "streamlit", "run", str(SCRIPT), *options, "--", *chosen]


def run_explorer(port: int | None, folders: tuple[Path, ...], browser: bool) -> None:
    """Serves the explorer until it is stopped."""
    start_folders(folders)  # refuses what is no folder before the server is up
    sys.exit(subprocess.run(streamlit_command(port, folders, browser), check=False).returncode)
