"""Which stated algorithm predicts the answers under swaps."""
