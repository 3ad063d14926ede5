"""Standard errors for rows that come in clusters, such as several episodes of one task.

What two rows of one task have in common (it is hard, say) is no independent evidence. A cluster-robust covariance sums
the rows' contributions to a coefficient's error inside each cluster before it squares them:

    var b = (X'X)^-1 ( sum_g X_g' e_g e_g' X_g ) (X'X)^-1 * G / (G - 1) * (n - 1) / (n - k)

With one row a cluster this is the covariance called HC1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def clustered_covariance(design: Matrix, target: Matrix, clusters: Sequence[str]) -> Matrix:
    """Covariance (k, k) of the coefficients of target (n,) on design (n, k) of full rank; `clusters` names each row's.

    NaN where the data do not determine it: one cluster only, or no degree of freedom left.
    """
    from statsmodels.regression.linear_model import OLS  # a second to load, and most commands fit nothing

    rows, columns = design.shape
    labels = np.unique(np.asarray(clusters), return_inverse=True)[1]
    if rows <= columns or labels.max(initial=0) == 0:
        return np.full((columns, columns), np.nan)
    fitted = OLS(target, design).fit(cov_type="cluster", cov_kwds={"groups": labels})
    return np.asarray(fitted.cov_params(), dtype=np.float64)
