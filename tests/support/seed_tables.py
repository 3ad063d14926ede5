"""Tables of paired differences over seeds and tasks whose variances are known."""

import numpy as np


def drawn(random: np.random.Generator, seeds, tasks, training=0.0, task=0.0, rest=1.0, effect=0.0):
    """A table (seeds, tasks) with these standard deviations."""
    rows, columns = random.normal(size=(seeds, 1)), random.normal(size=tasks)
    return effect + training * rows + task * columns + rest * random.normal(size=(seeds, tasks))
