"""One block of a transformer counter, a pre-LN GPT-2 block with ReLU (paper, section 3.2).

It has three steps, of which only the middle one mixes positions: `Block.read` returns queries, keys and values,
`Attention.attend` returns z, `Block.finish` returns the residual stream after the block. So a run can start at any
position if the keys and values of earlier positions are given.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from models.attention import Attention, AttentionInputs, KeysValues, Mask, Queries, Rotation
from models.config import TransformerConfig
from models.counter import listening
from models.shapes import HeadVectors, Stream

# Hook points that fire only while a switch of the config is on.
OPTIONAL_HOOKS = {
    ".hook_result": "use_attn_result",
    ".hook_q_input": "use_split_qkv_input",
    ".hook_k_input": "use_split_qkv_input",
    ".hook_v_input": "use_split_qkv_input",
    ".hook_attn_in": "use_attn_in",
    ".hook_mlp_in": "use_hook_mlp_in",
}


class LayerNorm(nn.Module):
    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.eps = cfg.eps
        self.w = nn.Parameter(torch.ones(cfg.d_model))
        self.b = nn.Parameter(torch.zeros(cfg.d_model))
        self.hook_scale = HookPoint()
        self.hook_normalized = HookPoint()

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        if not listening(self.hook_scale, self.hook_normalized):
            return F.layer_norm(x, self.w.shape, self.w, self.b, self.eps)
        centred = x - x.mean(-1, keepdim=True)
        scale = self.hook_scale((centred.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        return self.hook_normalized(centred / scale) * self.w + self.b


class MLP(nn.Module):
    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.W_in = nn.Parameter(torch.empty(cfg.d_model, cfg.d_mlp))
        self.b_in = nn.Parameter(torch.zeros(cfg.d_mlp))
        self.W_out = nn.Parameter(torch.empty(cfg.d_mlp, cfg.d_model))
        self.b_out = nn.Parameter(torch.zeros(cfg.d_model))
        self.hook_pre = HookPoint()
        self.hook_post = HookPoint()

    def forward(self, x: Stream) -> Stream:
        pre = self.hook_pre(F.linear(x, self.W_in.T, self.b_in))
        # In place if neither a hook nor a gradient needs `pre`: two of these wide tensors do not fit the cache.
        post = self.hook_post(F.relu(pre, inplace=not (pre.requires_grad or listening(self.hook_pre))))
        return F.linear(post, self.W_out.T, self.b_out)


class Block(nn.Module):
    hook_out_is_single_residual_stream = True  # TransformerLens checks this before it reads the stream

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.cfg = cfg
        self.ln1 = LayerNorm(cfg)
        self.ln2 = LayerNorm(cfg)
        self.attn = Attention(cfg, layer)
        self.mlp = MLP(cfg)
        self.hook_attn_in = HookPoint()
        self.hook_q_input = HookPoint()
        self.hook_k_input = HookPoint()
        self.hook_v_input = HookPoint()
        self.hook_mlp_in = HookPoint()
        self.hook_attn_out = HookPoint()
        self.hook_mlp_out = HookPoint()
        self.hook_resid_pre = HookPoint()
        self.hook_resid_mid = HookPoint()
        self.hook_resid_post = HookPoint()

    def forward(
        self,
        resid: Stream,
        rotation: Rotation | None,
        mask: Mask | None,
        past: KeysValues | None = None,
        queries: Int[Tensor, "query"] | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """The residual stream after the block, from the stream before it.

        `past` holds the keys and values of earlier positions, if `resid` does not begin at the first one.
        `queries` are the places in `resid` at which the stream is computed: all by default.
        """
        resid_pre, q, k, v = self.read(resid, rotation, queries)
        if past is not None:
            k, v = past.followed_by(k, v)
        return self.finish(resid_pre, self.attn.attend(q, k, v, mask))

    def read(
        self, resid: Stream, rotation: Rotation | None, queries: Int[Tensor, "query"] | None = None
    ) -> tuple[Float[Tensor, "batch query d_model"], Queries, HeadVectors, HeadVectors]:
        """The stream and the queries at the places `queries` (all by default), and keys and values at all places."""
        resid_pre = self.hook_resid_pre(resid)
        q, k, v = self.attn.qkv(self._attention_inputs(resid_pre), rotation, queries)
        return resid_pre if queries is None else resid_pre[:, queries], q, k, v

    def finish(self, resid_pre: Stream, z: HeadVectors) -> Stream:
        """The stream after the block, from the stream before it and z at the same positions."""
        resid_mid = self.hook_resid_mid(resid_pre + self.hook_attn_out(self.attn.write(z)))
        mlp_in = self.hook_mlp_in(resid_mid.clone()) if self.cfg.use_hook_mlp_in else resid_mid
        mlp_out = self.hook_mlp_out(self.mlp(self.ln2(mlp_in)))
        return self.hook_resid_post(resid_mid + mlp_out)

    def _attention_inputs(self, resid: Stream) -> AttentionInputs:
        if not (self.cfg.use_attn_in or self.cfg.use_split_qkv_input):
            return (self.ln1(resid),)
        per_head = resid.unsqueeze(-2).expand(-1, -1, self.cfg.n_heads, -1)
        if self.cfg.use_attn_in:
            per_head = self.hook_attn_in(per_head.clone())
        if not self.cfg.use_split_qkv_input:
            normalized = self.ln1(per_head)
            return normalized, normalized, normalized
        points = (self.hook_q_input, self.hook_k_input, self.hook_v_input)
        query, key, value = (self.ln1(point(per_head.clone())) for point in points)
        return query, key, value
