"""What the four sources claim and publish, beside a run that repeats them (`reproduces` in its configuration)."""

from toposcale.reproduction.analyses import ANALYSES
