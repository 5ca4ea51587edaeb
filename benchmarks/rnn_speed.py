"""What unused hook points cost an RNN or LSTM layer: forward and backward beside torch's own layer.

python benchmarks/rnn_speed.py
"""

import torch
from side_by_side import forward_and_backward, race
from torch import nn

from models.config import LSTMConfig, RNNConfig
from models.lstm import LSTMMixer
from models.recurrent import RecurrentBlock
from models.rnn import ElmanMixer


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'family':>7} {'width':>6} {'length':>7} {'torch ms':>9} {'ours ms':>9} {'ours / torch':>13}")
    for name, config, mixer, oracle in (
        ("rnn", RNNConfig, ElmanMixer, nn.RNN),
        ("lstm", LSTMConfig, LSTMMixer, nn.LSTM),
    ):
        for width in (64, 128):
            for length in (50, 128):
                x = torch.randn(32, length, width, generator=torch.Generator().manual_seed(0))
                ours = RecurrentBlock(mixer(config(10, d_model=width)))
                theirs = oracle(width, width, batch_first=True)
                theirs.load_state_dict(ours.mixer.cell.state_dict())
                torch.testing.assert_close(ours(x), theirs(x)[0])
                result = race({"torch": forward_and_backward(theirs, x), "ours": forward_and_backward(ours, x)})
                torch_ms, ours_ms, ratio = result["torch"][0], *result["ours"]
                print(f"{name:>7} {width:6} {length:7} {torch_ms:9.2f} {ours_ms:9.2f} {ratio:13.2f}")


if __name__ == "__main__":
    main()
