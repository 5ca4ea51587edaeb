"""`countlens export`"""

from pathlib import Path

from models.checkpoint import load_counter
from models.errors import CountLensError
from models.export import EXPORTS


def run_export(checkpoint: str, out: Path, format: str) -> None:
    """Writes the files of an export and prints their paths."""
    if any((out / name).exists() for name in ("model.safetensors", "config.json")):
        raise CountLensError(f"{out} already holds a model: choose another folder")
    EXPORTS[format](load_counter(checkpoint), out)
    print(f"wrote {out}/model.safetensors and {out}/config.json")
