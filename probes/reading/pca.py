"""Principal components: the one implementation for pictures, circles, curves over training and linear probes."""

import numpy as np
from jaxtyping import Float
from sklearn.decomposition import PCA, KernelPCA

ROUNDING = 1e-5  # variation below this share of the activations' size is rounding


def pca_for(centred: Float[np.ndarray, "row d"], components: int) -> PCA | KernelPCA:
    """An unfitted PCA that is fast for data of this shape; `centred` must have mean 0.

    A recurrent state can have a hundred times more columns than rows. Then the components are computed from the inner
    products of the rows, 15 times as fast and with the same result.
    """
    if centred.shape[1] > len(centred):
        return KernelPCA(components, kernel="linear", eigen_solver="dense")
    return PCA(components, svd_solver="covariance_eigh")


def principal_components(
    x: Float[np.ndarray, "row d"], components: int | None = None
) -> tuple[Float[np.ndarray, "row component"], Float[np.ndarray, "component"]]:
    """The coordinates of the rows on the first components (by default all), and each component's share of variance.

    Both are zero for components that vary only by rounding.
    """
    x = x.astype(np.float64)
    number = min(components or len(x), *x.shape)
    centred = x - x.mean(0)
    variance = (centred**2).sum()
    if variance <= ROUNDING**2 * (x**2).sum():
        return np.zeros((len(x), number)), np.zeros(number)
    coordinates = pca_for(centred, number).fit_transform(centred)
    shares = (coordinates**2).sum(0) / variance
    real = shares > ROUNDING**2
    return coordinates * real, shares * real
