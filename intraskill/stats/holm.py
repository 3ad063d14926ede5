"""Several contrasts at once: Holm's adjusted p-values.

Ten contrasts at level .05 show something by chance four times in ten. Holm's step-down rule keeps the chance of even
one false finding at alpha, whatever the dependence between contrasts, and is never weaker than Bonferroni's: the
smallest p-value is multiplied by the number of contrasts, the next by one less, and none may fall below its
predecessor. A contrast is shown where its adjusted p-value is at most alpha.
"""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values, in the order given."""
    adjusted = [0.0] * len(p_values)
    reached = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        reached = max(reached, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = reached
    return adjusted
