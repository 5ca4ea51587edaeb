"""Principal components: one implementation for pictures, circles, curves over training and linear probes."""

import numpy as np
from jaxtyping import Float
from sklearn.decomposition import PCA, KernelPCA

ROUNDING = 1e-5  # what varies by less than this share of the activations' size is rounding


def pca_for(centred: Float[np.ndarray, "row d"], components: int) -> PCA | KernelPCA:
    """The PCA, not yet fitted, that suits rows of this number and width; their mean should be 0.

    A recurrent state can have a hundred times more columns than there are rows. Its components then come from the
    inner products of the rows, 15 times as fast and with the same result.
    """
    if centred.shape[1] > len(centred):
        return KernelPCA(components, kernel="linear", eigen_solver="dense")
    return PCA(components, svd_solver="covariance_eigh")


def principal_components(
    x: Float[np.ndarray, "row d"], components: int | None = None
) -> tuple[Float[np.ndarray, "row component"], Float[np.ndarray, "component"]]:
    """Coordinates on the first components, or on all, and the share of the variance of each.

    Both are zero where nothing but rounding varies.
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
