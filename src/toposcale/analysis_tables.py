"""The schemas of the analyses' tables: a line or two each, in the order in which the columns are written."""

from __future__ import annotations

import pyarrow as pa

from toposcale.tables import Table

_TYPES = {"text": pa.string(), "int": pa.int64(), "bool": pa.bool_(), "": pa.float64()}


def _analysis(name: str, key: str, columns: str) -> Table:
    """`columns` are names with a type behind a colon; those without one are numbers (float64)."""
    parts = [column.partition(":") for column in columns.split()]
    return Table(name, pa.schema([(name, _TYPES[kind]) for name, _, kind in parts]), tuple(key.split()))


CORRELATIONS = _analysis(
    "correlations",
    "model source layer feature metric",
    """
    model:text source:text layer:text feature:text metric:text n:int n_left_out:int spearman
    spearman_low spearman_high spearman_block_low spearman_block_high p_spearman p_spearman_bh
    p_spearman_bonferroni pearson pearson_low pearson_high pearson_block_low pearson_block_high
    p_pearson p_pearson_bh p_pearson_bonferroni spearman_differences spearman_differences_low
    spearman_differences_high p_differences n_effective innovation_correlation p_surrogate
    p_surrogate_bh p_surrogate_bonferroni reason:text
    """,
)
PARTIAL_CORRELATIONS = _analysis(
    "partial_correlations",
    "model source layer feature metric given",
    """
    model:text source:text layer:text feature:text metric:text given:text n:int n_left_out:int
    partial_spearman partial_spearman_low partial_spearman_high p_naive innovation_correlation
    p_surrogate p_surrogate_bh n_effective reason:text
    """,
)
POOLED_CORRELATIONS = _analysis(
    "pooled_correlations",
    "source layer feature metric given",
    """
    source:text layer:text feature:text metric:text given:text n_models:int spearman spearman_low
    spearman_high i_squared innovation_correlation innovation_low innovation_high
    innovation_i_squared p_surrogate p_surrogate_bh
    """,
)
VERDICTS = _analysis(
    "verdicts",
    "model source layer feature metric",
    """
    model:text source:text layer:text feature:text metric:text follows_the_loss:bool
    follows_the_loss_rho follows_the_loss_low follows_the_loss_high beyond_the_norm:bool
    beyond_the_norm_rho beyond_the_norm_low beyond_the_norm_high beyond_the_norm_innovation
    beyond_the_norm_innovation_low beyond_the_norm_innovation_high beyond_the_norm_p beyond_the_norm_reason:text
    beyond_the_step:bool beyond_the_step_rho beyond_the_step_low beyond_the_step_high beyond_the_step_innovation
    beyond_the_step_innovation_low beyond_the_step_innovation_high beyond_the_step_p beyond_the_step_reason:text
    survives_correction:bool survives_correction_p reason:text
    """,
)
RANKING = _analysis(
    "ranking",
    "metric rank source layer feature",
    """
    metric:text rank source:text layer:text feature:text group:text n_models:int strength
    strength_low strength_high over_norm over_norm_low over_norm_high
    """,
)
FEATURE_GROUPS = _analysis(
    "feature_groups",
    "metric statistic first second",
    """
    metric:text statistic:text first:text second:text n_first:int n_second:int strength_first
    strength_second difference difference_low difference_high
    """,
)
SCALING = _analysis(
    "scaling",
    "source layer feature law",
    """
    source:text layer:text feature:text law:text n_models:int coefficient exponent exponent_low
    exponent_high exponent_bootstrap_low exponent_bootstrap_high offset r_squared spearman
    p_spearman reason:text
    """,
)
LARGEST_MODEL = _analysis(
    "largest_model",
    "source layer feature law",
    """
    source:text layer:text feature:text law:text n_parameters:int n_models:int actual predicted
    predicted_low predicted_high error relative_error reason:text
    """,
)
TRANSITIONS = _analysis(
    "transitions",
    "model source layer feature",
    """
    model:text source:text layer:text feature:text n:int transition_step change settled_step
    n_change_points:int reason:text
    """,
)
CHANGE_POINTS = _analysis(
    "change_points",
    "model source layer feature step",
    """
    model:text source:text layer:text feature:text step:int
    """,
)
COINCIDENCES = _analysis(
    "coincidences",
    "first_source first_feature second_source second_feature",
    """
    first_source:text first_feature:text second_source:text second_feature:text n_models:int
    n_first:int n_second:int observed expected p_value p_value_bh
    """,
)
EARLY_STOPPING = _analysis(
    "early_stopping",
    "model source layer feature patience",
    """
    model:text source:text layer:text feature:text patience:int stop_step:int triggered:bool
    metric_stop_step:int metric_triggered:bool steps_saved:int loss_given_up
    """,
)
EARLY_STOPPING_SUMMARY = _analysis(
    "early_stopping_summary",
    "source layer feature patience",
    """
    source:text layer:text feature:text patience:int n_models:int steps_saved steps_saved_low
    steps_saved_high loss_given_up loss_given_up_low loss_given_up_high
    """,
)
FORECASTS = _analysis(
    "forecasts",
    "model fraction method",
    """
    model:text fraction method:text forecast low high actual error reason:text
    """,
)
FORECAST_EVALUATION = _analysis(
    "forecast_evaluation",
    "fraction method",
    """
    fraction method:text n_models:int n_forecasts:int mae mae_low mae_high spearman
    interval_coverage improvement_percent improvement_low improvement_high wilcoxon_p
    permutation_mae permutation_p note:text
    """,
)
DECISIONS = _analysis(
    "decisions",
    "model fraction policy",
    """
    model:text next_model:text fraction policy:text advice:text right:bool budget spent
    forecast_switch forecast_low forecast_high true_switch true_is_bound:bool log10_error regret regret_sunk
    compute_saved compute_saved_percent reason:text
    """,
)
DECISION_EVALUATION = _analysis(
    "decision_evaluation",
    "fraction policy",
    """
    fraction policy:text n_advised:int share_right log10_error log10_error_low log10_error_high
    regret regret_low regret_high regret_sunk regret_sunk_low regret_sunk_high compute_saved_percent
    compute_saved_percent_low compute_saved_percent_high
    """,
)
COMPARISON = _analysis(
    "comparison",
    "source table model step quantity",
    """
    source:text table:text model:text step:int quantity:text published ours difference note:text setting:text
    """,
)
GRAPH_DEPENDENCE = _analysis(
    "graph_dependence",
    "model feature",
    """
    model:text feature:text n_checkpoints:int n_graphs:int lowest lowest_graph:text highest highest_graph:text
    spread_over_graphs spread_over_repeats spread_over_training agreement agreement_least
    """,
)

WARNINGS = _analysis("warnings", "model step warning", "model:text step:int warning:text")
SUMMARY = _analysis("summary", "position", "position:int question:text verdict:text answer:text")

BY_NAME = {table.name: table for table in list(globals().values()) if isinstance(table, Table)}
