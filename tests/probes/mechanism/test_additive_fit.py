"""Coefficients of several designs that were fitted together."""

import torch

from probes.mechanism.additive_fit import additive_fit


def test_what_each_of_two_variables_adds_is_found_though_they_go_together() -> None:
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(200, 2, generator=generator, dtype=torch.float64)
    second = first[:, :1] + 0.3 * torch.randn(200, 1, generator=generator, dtype=torch.float64)
    truth = {
        name: torch.randn(width, 4, generator=generator, dtype=torch.float64)
        for name, width in (("first", 2), ("second", 1))
    }
    found = additive_fit({"first": first, "second": second}, first @ truth["first"] + second @ truth["second"])
    for name, coefficients in truth.items():
        torch.testing.assert_close(found[name], coefficients, atol=1e-5, rtol=1e-5)
