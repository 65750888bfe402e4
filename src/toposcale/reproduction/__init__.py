"""Claims and published values of the four sources, for runs that repeat them (`reproduces` in a configuration)."""

from toposcale.reproduction.analyses import ANALYSES
