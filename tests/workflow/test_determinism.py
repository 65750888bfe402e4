"""The same bytes in every table, whatever the number of cores and the cut of training into jobs.

`test_run.py` holds a whole run on 1 core, and one of 4 with a job a model, against one of 2; here are the others.
"""

import pytest

import faults

pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("faults")]


@pytest.mark.parametrize(("cores", "jobs"), [(1, "model"), (4, "checkpoint")])
def test_the_same_bytes_whatever_the_cores_and_jobs(undisturbed, tmp_path, cores, jobs):
    workspace = faults.smallest(tmp_path / "work")
    workspace.config["training"]["jobs"] = jobs
    workspace.config["weights"] = {"jobs": jobs}
    status, said = faults.run(workspace, faults.TARGET, cores=cores)
    assert status == 0, said
    assert said.count("Training one") == (1 if jobs == "model" else 3)
    assert said.count("Topology of the weights of one") == (1 if jobs == "model" else 3)
    faults.assert_same_bytes(workspace, undisturbed)


def test_a_removed_feature_file_is_made_again_alone(copy):
    path = copy.results / "features" / "weights" / "one" / "step-00000002.parquet"
    content = path.read_bytes()
    path.unlink()
    target = str(path.relative_to(copy.path))
    assert copy.planned(target) == {"weight_features": 1}
    tables = copy.tables()
    copy.snakemake(target)
    assert path.read_bytes() == content
    assert copy.tables() == tables
