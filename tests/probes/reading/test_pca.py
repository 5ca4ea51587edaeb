"""Principal components: by columns and by rows the same as a plain singular value decomposition."""

import numpy as np
import pytest

from probes.reading.pca import pca_for, principal_components


def svd(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates up to their signs, and shares of the variance."""
    left, sizes, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    return np.abs(left * sizes), sizes**2 / (sizes**2).sum()


@pytest.mark.parametrize("width", [7, 30, 200])
@pytest.mark.parametrize("components", [3, None])
def test_they_are_those_of_a_singular_value_decomposition(width: int, components: int | None) -> None:
    x = 100 + np.random.default_rng(1).normal(size=(30, width)) * np.linspace(5, 1, width)
    ours, shares = principal_components(x, components)
    theirs, their_shares = svd(x)
    number = components or min(30, width)
    assert ours.shape == (30, number)
    np.testing.assert_allclose(np.abs(ours), theirs[:, :number], atol=1e-6)
    np.testing.assert_allclose(shares, their_shares[:number], atol=1e-10)


@pytest.mark.parametrize("width", [5, 200])
def test_rounding_is_no_component(width: int) -> None:
    generator = np.random.default_rng(2)
    constant = 1 + 1e-7 * generator.normal(size=(30, width))
    assert not any(part.any() for part in principal_components(constant))
    line = constant + np.arange(30)[:, None]
    coordinates, shares = principal_components(line)
    assert shares[0] == pytest.approx(1)
    assert not coordinates[:, 1:].any()


@pytest.mark.parametrize("width", [5, 200])
def test_other_rows_land_on_the_components_of_those_that_were_fitted(width: int) -> None:
    generator = np.random.default_rng(3)
    x, other = generator.normal(size=(2, 30, width)) * np.linspace(5, 1, width)
    x -= x.mean(0)
    axes = np.linalg.svd(x)[2][:2]
    found = pca_for(x, 2).fit(x).transform(other)
    np.testing.assert_allclose(np.abs(found), np.abs(other @ axes.T), atol=1e-6)
