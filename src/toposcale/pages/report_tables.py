"""Which tables the report lists. Apart, so that the workflow can ask without importing what the page is made with."""

from __future__ import annotations

LISTED: dict[str, str] = {
    "verdicts": """source feature metric follows_the_loss follows_the_loss_rho follows_the_loss_rho_lowest
        follows_the_loss_rho_highest beyond_the_norm beyond_the_norm_rho beyond_the_norm_innovation beyond_the_norm_p
        beyond_the_norm_q beyond_the_norm_reason beyond_the_step beyond_the_step_rho beyond_the_step_innovation
        beyond_the_step_p beyond_the_step_q beyond_the_step_reason beyond_the_variance beyond_the_variance_rho
        beyond_the_variance_innovation beyond_the_variance_p beyond_the_variance_q beyond_the_variance_reason
        within_cells within_cells_correlation within_cells_q within_cells_reason
        between_runs between_runs_correlation between_runs_q between_runs_reason""",
    "tested_features": "",
    "sensitivity": "",
    "run_permutation": "",
    "between_runs": "",
    "correlations": """model source feature metric n n_left_out spearman spearman_low spearman_high spearman_block_low
        spearman_block_high reason""",
    "ranking": "",
    "divergences": "",
    "feature_groups": "",
    "scaling": "",
    "size_extrapolation": "",
    "transitions": "",
    "change_point_coincidence": "",
    "early_stopping_summary": "",
    "forecasts": "",
    "forecast_evaluation": "",
    "score_forecasts": "",
    "score_evaluation": "",
    "decisions": "",
    "decision_evaluation": "",
    "graph_dependence": "",
}
"""The tables of the page in their order, and the columns of those that have more than a page holds."""
