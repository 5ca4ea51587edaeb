"""Names of hook points, from one function: `hook_name("resid_post", layer=1)`."""

from transformer_lens.utilities import get_act_name

MIXER_SITES = ("state", "state_step")  # the sites inside the mixer of a recurrent counter


def hook_name(site: str, layer: int | None = None, part: str | None = None) -> str:
    """The full name of a hook point, in TransformerLens' shorthand.

    >>> hook_name("resid_post", layer=1)
    'blocks.1.hook_resid_post'
    >>> hook_name("q", layer=0)
    'blocks.0.attn.hook_q'
    >>> hook_name("scale", layer=0, part="ln1")
    'blocks.0.ln1.hook_scale'
    >>> hook_name("state", layer=0)
    'blocks.0.mixer.hook_state'
    """
    if part is None and site in MIXER_SITES:
        part = "mixer"
    return str(get_act_name(site, layer, part))
