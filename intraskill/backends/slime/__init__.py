"""The slime backend: the method's driver inside one unmodified slime process.

slime owns the cluster, the inference engines and the trainer. Through its public extension points it asks this package
for a step's samples, for an evaluation, for normalised rewards and for the data source's state; the round driver that
the embedded backend uses as well answers. Only this package imports slime.
"""
