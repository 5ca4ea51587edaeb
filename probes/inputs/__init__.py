"""Rows to ask a counter about: drawn, typed, of equal tokens, in counterfactual pairs."""
