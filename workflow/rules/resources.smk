# What jobs ask for: memory and time, by the attempt and by the size of a checkpoint. A rule that takes seconds or needs the
# network is a `localrule`: it runs where Snakemake runs, not on a node of a cluster.
import errno
import functools


@functools.cache
def sizes_in_folder(model):
    """Weights, and entries of the largest matrix, of a folder's checkpoints, which are of one shape."""
    return checkpoints.stored_sizes(weights_of(model, MODELS[model].steps[-1]))


def sizes_of(wildcards):
    """Weights, and entries of the largest matrix, of a checkpoint from elsewhere; zeros where they are tiny or not usable.

    FileNotFoundError: it was not fetched yet. Snakemake asks again when it was.
    """
    model = wildcards.model
    if MODELS[model].kind == model_kinds.FOLDER:
        return sizes_in_folder(model)
    if MODELS[model].kind != model_kinds.HUB:
        return checkpoints.Sizes(0, 0, 0)
    if not os.path.exists(SIZE.format(**wildcards)):
        raise FileNotFoundError(errno.ENOENT, "not fetched yet", MANIFEST.format(**wildcards))
    facts = last_attempt(model, wildcards.span)
    return checkpoints.Sizes(*(facts.get(name) or 0 for name in checkpoints.Sizes._fields))


def on_attempt(amount):
    """A resource: an amount at the first attempt, as much again at every further one (`retries` of a profile)."""
    return lambda wildcards, attempt: amount * attempt


def by_size(base, per_weight=0.0, per_matrix=0.0):
    """A resource: an amount for a tiny checkpoint, and more for each million weights or entries of the largest matrix."""

    def resource(wildcards, input, attempt):
        sizes = sizes_of(wildcards)
        more = per_weight * sizes.n_parameters + per_matrix * sizes.largest_matrix
        return int(base + more / 1e6) * attempt

    return resource
