"""Counters in plain TransformerLens: a live bridge for 4.x, and files for 2.x, 3.x and 4.x."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge.sources.native import boot as boot_native
from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint

from models.atomic import write_text
from models.checkpoint import save_tensors
from models.counter import Counter
from models.errors import CountLensError

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge


def to_transformer_lens(counter: Counter) -> "TransformerBridge":
    """The counter as a `TransformerBridge` (TransformerLens 4.x): same logits, its own hooks.

    Call it with explicit positions: `bridge(token_ids, position_ids=position_ids)`.
    """
    cfg = TransformerBridgeConfig.from_dict(_config(counter) | {"device": str(counter.device)})
    bridge = boot_native(cfg, device=counter.device)
    bridge.load_state_dict(convert_tl_checkpoint(counter.interchange_state(), cfg))
    return bridge.eval()


def export_hooked_transformer(counter: Counter, folder: Path) -> None:
    """`model.safetensors` and `config.json` for `HookedTransformer` of TransformerLens 2.x and 3.x."""
    _write(folder, counter.interchange_state(), _config(counter))


def export_bridge(counter: Counter, folder: Path) -> None:
    """`model.safetensors` and `config.json` for `TransformerBridge.boot_native` of TransformerLens 4.x."""
    cfg = _config(counter)
    state = convert_tl_checkpoint(counter.interchange_state(), TransformerBridgeConfig.from_dict(cfg))
    _write(folder, state, cfg)


EXPORTS = {"hooked-transformer": export_hooked_transformer, "bridge": export_bridge}


def _config(counter: Counter) -> dict[str, Any]:
    config = counter.transformer_lens_config()
    if config is None:
        positions = f" with {counter.cfg.position} positions" if hasattr(counter.cfg, "position") else ""
        positions += " of other periods than the usual" if getattr(counter.cfg, "periods", None) else ""
        raise CountLensError(
            f"TransformerLens has no {type(counter).__name__}{positions}: its checkpoint is plain safetensors already"
        )
    return config


def _write(folder: Path, state: dict[str, torch.Tensor], cfg: dict[str, Any]) -> None:
    tensors = {name: tensor.cpu().contiguous() for name, tensor in state.items()}
    save_tensors(folder / "model.safetensors", tensors, {"format": "pt"})
    write_text(folder / "config.json", json.dumps(cfg, indent=2) + "\n")
