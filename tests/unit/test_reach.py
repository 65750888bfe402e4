"""The modules that each rule depends on: a changed line of one of them runs the rule again, and of another one does not.

A module that a rule newly reaches needs its line here, and a thought: do the numbers of the rule depend on it?
"""

import re

import pytest

import fingerprint
from paths import ROOT
from toposcale import analysis, reproduction
from toposcale.figures import FIGURES

ANALYSES = analysis.ANALYSES | reproduction.ANALYSES


def modules(text):
    """The modules of lines such as "io: errors files"."""
    lines = (line.partition(":") for line in text.strip().splitlines())
    return {f"{package.strip()}/{name}" for package, _, names in lines for name in names.split()}


# What every job needs to write a table, and what a script has beside it.
JOB = modules("""
    io: errors files job_files schemas tables tensor_files
    scripts: _job
""")
DESCRIBED = modules("""
    features: descriptions feature
    forecasting/runs: metrics
""")
FRAMES = JOB | modules("""
    features: feature
    forecasting/runs: metrics
    scripts: _tables
""")
WEIGHT_FILES = modules(
    "io: bin_files checkpoint_parts not_weights quantisation stub_unpickler tensor_files weight_files"
)
CHECKPOINTS = WEIGHT_FILES | modules("checkpoints: checkpoint locations matrices\nio: factors")
MEASURED = CHECKPOINTS | modules("""
    scripts: _checkpoints _notes
""")
RIPS = modules("homology: rips spanning_tree validation")
CLOUDS = RIPS | modules("homology: diagrams sampling")
# The registry holds the functions of a matrix.
REGISTRY = (
    DESCRIBED
    | RIPS
    | modules("""
    features: matrix_features registry spectra
    homology: neural_persistence weight_graphs
""")
)
WEIGHTS = CLOUDS | REGISTRY | modules("features: adapters weights\nio: factors files")
DISTANCES = DESCRIBED | modules("""
    features: diagram_distances
    homology: distances validation
""")
# A schedule may lie in a file of the user's.
SCHEDULES = modules("""
    forecasting/logs: table_files
    forecasting/runs: schedules
""")
TRAINING = SCHEDULES | modules("""
    io: tensor_files
    training: corpus gpt trainer
""")
LANGUAGE_MODELS = MEASURED | TRAINING | modules("checkpoints: language_models")
LANDSCAPE = (
    (LANGUAGE_MODELS - modules("scripts: _checkpoints _notes"))
    | CLOUDS
    | DESCRIBED
    | modules("""
    features: landscape
    landscape: curvature graphs krylov losses measure merge_tree planes profile subspaces surface
    scripts: _landscape
""")
)
RUNS = SCHEDULES | modules("""
    forecasting/runs: metrics
    forecasting/runs: curves facts learning_rate_schedule outliers series training_run
    analysis: series training_runs
""")
LAWS = (
    RUNS
    | REGISTRY  # the ridge regression asks for the groups of features
    | modules("""
    analysis: calibration methods rate ridge
    forecasting/laws: annealing chinchilla discrepancy family_law joint law
    forecasting/laws: multi_power_law power_law prediction priors published_law residuals
    forecasting/runs: checks
""")
)
FORECASTS = LAWS | modules("analysis: forecasts")
DECISION = modules("""
    forecasting: amounts pictures
    forecasting/decision: advice candidates decay expected_regret on_track picture reasons wording
""")
DECISIONS = FORECASTS | DECISION | modules("analysis: decisions")
TESTS = modules("""
    analysis: aligned controls correlations sensitivity series verdicts
    statistics: coefficients multiple_testing prewhitening resampling
""")
ANSWERS = TESTS | DECISIONS | modules("analysis: answers\nfeatures: names")
LOGS = modules("""
    forecasting: amounts
    forecasting/logs: columns event_files grammars json_logs labels line_forms log_files loss_curves measurements names
    forecasting/logs: patterns rows segments step_lines table_files text_lines text_logs trainer_states
""")
NAMES = REGISTRY | modules("features: names\nanalysis: series")
FIGURE = FRAMES | NAMES | modules("figures: configurations gallery panels style")

OF_A_SCRIPT = {
    "compared": JOB,
    "corpus": JOB | modules("io: tensor_files\ntraining: corpus"),
    "diagram_distances": (
        JOB | DISTANCES | RIPS | modules("io: tensor_files\nfeatures: divergences\nhomology: representations sampling")
    ),
    "embeddings": (
        JOB | LANGUAGE_MODELS | CLOUDS | modules("features: divergences embeddings spectra\nhomology: representations")
    ),
    "explorer": (
        FRAMES
        | NAMES
        | modules("""
            figures: landscape panels style
            landscape: graphs merge_tree planes
            pages: __init__ columns explorer
        """)
    ),
    "fetch": JOB | CHECKPOINTS | modules("checkpoints: hub step_names"),
    "figures": FIGURE,
    "gather": JOB,
    "loss_landscape": JOB | LANDSCAPE | MEASURED,
    "loss_table": JOB
    | SCHEDULES
    | LOGS
    | modules("scripts: _notes\nanalysis: curve_tables\nforecasting/runs: facts metrics outliers series"),
    "metrics_table": (
        JOB
        | modules("""
            analysis: lm_eval user_tables
            forecasting/logs: table_files
            checkpoints: step_names
            scripts: _notes
        """)
    ),
    "models_table": JOB
    | SCHEDULES
    | CHECKPOINTS
    | modules("""
        analysis: model_rows
        forecasting/logs: trainer_states
        forecasting/runs: breakpoints learning_rate_schedule series warmup
    """),
    "report": (
        FRAMES
        | ANSWERS
        | CHECKPOINTS
        | NAMES
        | WEIGHTS
        | modules("""
            checkpoints: model_kinds
            reproduction: claims run_values
            features: diagram_distances ripser_check roles
            figures: configurations gallery panels style
            homology: distances
            landscape: planes
            pages: __init__ cards columns provenance report
        """)
    ),
    "table_csv": JOB,
    "train": JOB | TRAINING | modules("training: callbacks"),
    "training_path": JOB | LANDSCAPE,
    "trajectory": JOB | CLOUDS | modules("io: tensor_files\nfeatures: trajectory\nhomology: dimension"),
    "vectors": JOB | DISTANCES | modules("features: vectors"),
    "warnings_table": (FRAMES | WEIGHTS | modules("scripts: _notes\nanalysis: warnings\nhomology: distances")),
    "weight_features": JOB | MEASURED | WEIGHTS,
}
OF_AN_ANALYSIS = {
    "correlations": TESTS,
    "scaling": modules("""
        analysis: scaling series
        statistics: coefficients resampling scaling
    """),
    "transitions": modules("analysis: series transitions\nstatistics: changes"),
    "early_stopping": modules("analysis: early_stopping series\nstatistics: patience"),
    "forecasts": FORECASTS,
    "scores": FORECASTS | modules("analysis: scores"),
    "decisions": DECISIONS,
    "comparison": modules("reproduction: comparison"),
    "claims": ANSWERS | modules("reproduction: claims run_values\nfeatures: roles\nlandscape: planes"),
    "summary": ANSWERS | modules("analysis: summary"),
}
OF_A_FIGURE = {
    "forecasting": (LAWS - modules("analysis: calibration")) | modules("figures: forecasting"),
    "landscape": modules("figures: landscape\nlandscape: graphs merge_tree planes"),
    "layers": modules("figures: layers\nfeatures: roles\nhomology: diagrams"),
    "statistics": TESTS | modules("figures: statistics"),
    "training": modules("figures: training\nanalysis: controls"),
}


def reached(script, *names):
    """What a rule reaches beside its script."""
    files = fingerprint.reached(f"{script}.py", *names) - {ROOT / f"scripts/{script}.py"}
    folders = (ROOT / "src/toposcale", ROOT)
    relative = (path.relative_to(next(filter(path.is_relative_to, folders))) for path in files)
    return {path.with_suffix("").as_posix() for path in relative}


def test_every_script_of_a_rule_has_its_line():
    files = [ROOT / "workflow/parts.py", ROOT / "workflow/run_tables.py", *(ROOT / "workflow/rules").glob("*.smk")]
    text = "".join(path.read_text() for path in files)
    without_code = {"resolved_configuration"}  # see test_fingerprint.py
    assert set(re.findall(r"(?:scripts/|\")(\w+)\.py", text)) - without_code == {*OF_A_SCRIPT, "analyse"}
    assert OF_AN_ANALYSIS.keys() == ANALYSES.keys()
    assert OF_A_FIGURE.keys() == {figure.module for figure in FIGURES.values()}


@pytest.mark.parametrize("script", OF_A_SCRIPT)
def test_a_rule_depends_on_the_modules_that_its_numbers_depend_on(script):
    assert reached(script) == OF_A_SCRIPT[script]


@pytest.mark.parametrize("name", OF_AN_ANALYSIS)
def test_an_analysis_depends_on_its_own_module_and_what_that_uses(name):
    expected = FRAMES | modules("analysis: analyses\nreproduction: analyses") | OF_AN_ANALYSIS[name]
    assert reached("analyse", ANALYSES[name].module) == expected


@pytest.mark.parametrize("module", OF_A_FIGURE)
def test_a_figure_depends_on_its_own_module_and_what_that_uses(module):
    assert reached("figures", f"toposcale.figures.{module}") == FIGURE | OF_A_FIGURE[module]


def test_nothing_that_is_measured_or_trained_reads_a_log():
    for script in (
        "train",
        "gather",
        "weight_features",
        "embeddings",
        "loss_landscape",
        "diagram_distances",
        "table_csv",
    ):
        assert not reached(script) & (LOGS - SCHEDULES), script
