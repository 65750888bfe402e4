"""The packages of the wheel; everything else is in pyproject.toml.

The wheel carries the workflow, for `toposcale run`, as data of a package whose folder is that of the project.
"""

from setuptools import find_packages, setup

WORKFLOW = "toposcale._workflow"

setup(packages=[*find_packages("src"), WORKFLOW], package_dir={"": "src", WORKFLOW: "."})
