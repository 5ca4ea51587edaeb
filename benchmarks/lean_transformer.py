"""The lean baseline: the same decoder in plain PyTorch, with fused attention and no hooks."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LeanBlock(nn.Module):
    def __init__(self, d_model: int, n_heads: int, d_mlp: int, layer: int) -> None:
        super().__init__()
        self.n_heads, self.scale = n_heads, 1 / (math.sqrt(d_model // n_heads) * (layer + 1))
        self.ln1, self.ln2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.mlp = nn.Sequential(nn.Linear(d_model, d_mlp), nn.ReLU(), nn.Linear(d_mlp, d_model))

    def forward(self, x: Tensor) -> Tensor:
        batch, pos, width = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(batch, pos, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        x = x + self.out(z.transpose(1, 2).reshape(batch, pos, width))
        return x + self.mlp(self.ln2(x))


class LeanTransformer(nn.Module):
    """Learned absolute positions, as scheme `ape`."""

    def __init__(self, d_vocab: int, max_position: int, n_layers: int, d_model: int, n_heads: int, d_mlp: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(d_vocab, d_model), nn.Embedding(max_position, d_model)
        self.blocks = nn.Sequential(*(LeanBlock(d_model, n_heads, d_mlp, layer) for layer in range(n_layers)))
        self.norm, self.head = nn.LayerNorm(d_model), nn.Linear(d_model, d_vocab, bias=False)

    def forward(self, token_ids: Tensor, position_ids: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.tokens(token_ids) + self.positions(position_ids))))


def copy_weights(lean: LeanTransformer, state: dict[str, Tensor]) -> None:
    """Loads HookedTransformer-format tensors (of a counter whose layers are not yet scaled)."""
    with torch.no_grad():
        lean.tokens.weight.copy_(state["embed.W_E"])
        lean.positions.weight.copy_(state["pos_embed.W_pos"])
        lean.head.weight.copy_(state["unembed.W_U"].T)
        lean.norm.weight.copy_(state["ln_final.w"])
        lean.norm.bias.copy_(state["ln_final.b"])
        for layer, block in enumerate(lean.blocks):
            part = {name.removeprefix(f"blocks.{layer}."): tensor for name, tensor in state.items()}
            weights = [part[f"attn.W_{kind}"].permute(0, 2, 1).flatten(0, 1) for kind in "QKV"]
            block.qkv.weight.copy_(torch.cat(weights))
            block.qkv.bias.copy_(torch.cat([part[f"attn.b_{kind}"].flatten() for kind in "QKV"]))
            block.out.weight.copy_(part["attn.W_O"].flatten(0, 1).T)
            block.out.bias.copy_(part["attn.b_O"])
            for norm in ("ln1", "ln2"):
                getattr(block, norm).weight.copy_(part[f"{norm}.w"])
                getattr(block, norm).bias.copy_(part[f"{norm}.b"])
            block.mlp[0].weight.copy_(part["mlp.W_in"].T)
            block.mlp[0].bias.copy_(part["mlp.b_in"])
            block.mlp[2].weight.copy_(part["mlp.W_out"].T)
            block.mlp[2].bias.copy_(part["mlp.b_out"])
