"""What the tables of the analyses hold, as text in the form that `table_definitions` explains."""

DEFINITIONS = """
correlations: correlation of every feature with every metric, model by model: as it is, and given each control
  model source layer feature metric
  control text what is held fixed: nothing, step, weight_norm, weight_norm_and_step, weight_norm_and_variance
  n count checkpoints that were used
  n_left_out count checkpoints of the feature that could not be used
  spearman interval Spearman correlation (partial, given a control); bootstrap of independent checkpoints, as published
  spearman_block_low number lower end of its moving-block interval
  spearman_block_high number upper end of its moving-block interval
  spearman_p number its p-value under independence, as published; counted over all orders up to 7 checkpoints
  pearson interval Pearson correlation; bootstrap of independent checkpoints, as published
  pearson_block_low number lower end of its moving-block interval
  pearson_block_high number upper end of its moving-block interval
  pearson_p number its p-value under independence, as published
  spearman_differences interval Spearman correlation of the first differences; moving blocks
  differences_p number its p-value under independence
  n_effective number effective number of independent checkpoints, after autocorrelation
  n_tested count checkpoints of the testable stretch; 0 if there is none, or no control
  innovation_correlation number correlation of the innovations given the control, on the testable stretch
  innovation_p number p-value of the innovation test given the control; the trend in the step is always removed
  reason
  sorted by model source layer feature metric control

pooled_correlations: correlations over runs: seeds are averaged within their cell, then cells are combined
  source layer feature metric
  control text what is held fixed: nothing, step, weight_norm, weight_norm_and_step, weight_norm_and_variance
  n_runs count runs with a correlation
  n_cells count cells (runs that differ by their seed alone) with a correlation
  spearman number median over cells of the (partial) Spearman correlation
  spearman_lowest number lowest of a cell
  spearman_highest number highest of a cell
  innovation_correlation number median over cells of the innovation correlation
  innovation_correlation_lowest number lowest of a cell
  innovation_correlation_highest number highest of a cell
  n_tested count runs that entered the test
  p number p-value of the innovation test of all runs together; its sign flips are shared by the runs
  reason
  sorted by source layer feature metric control

over_seeds: the tests over the runs of cells with at least 8 seeds: within_cells and between_runs (docs/statistics.md)
  question
  source layer feature metric
  n_runs count runs
  n_cells count cells
  n count within_cells: checkpoints that were used
  freedom count between_runs: degrees of freedom that remain after controls and cells
  correlation number within_cells: mean over runs of the innovation correlation; between_runs: the partial correlation
  by_chance number within_cells: the same over all pairings of runs within a cell
  p number its p-value by permutations of runs within cells
  n_permutations count permutations that were counted
  exact flag whether these are all permutations
  sorted by question source layer feature metric

verdicts: the answer to each question that is asked of a feature and a metric, of each model and of all together ("pooled")
  model source layer feature metric
  question
  control text what is held fixed
  answer text yes, no or not tested
  estimate number the correlation that the answer is about (docs/statistics.md)
  low number lower end of its 95% interval, where its coverage was measured; else empty
  high number upper end of that interval
  p number p-value; empty for follows_the_loss, which no test decides
  q number the same after Benjamini-Hochberg over the family
  reason text why there is no answer
  family text the family of tests for q: the question, whole models or layers, the metric, the model or pooled
  sorted by model source layer feature metric question

tested_features: how many features of whole models were tested for each question
  question
  source
  measured count features with values
  testable count features with a testable stretch in at least one run
  tested count features with a p
  distinct count groups of tested features; features with |rho| of at least 0.95 are one group
  found count features with the answer yes
  reason
  sorted by question source

sensitivity: which effects the tests over all runs could have found, for the headline metric
  question
  control text what is held fixed
  n_runs count runs that entered
  n_points count checkpoints of the testable stretch, median over runs
  n_tested count features of the family
  correlation number innovation correlation of the positive control, the metric with noise; mean over runs
  p number its p-value
  q number the same after Benjamini-Hochberg, as one more feature of the family
  found text yes, no or not tested: whether the positive control was found
  detectable number innovation correlation at which 80% of simulated features are found, each alone in this family
  outside text what of the run lies outside of where the false-positive rate of the test was measured; empty if nothing does
  reason
  sorted by question

power: share of simulated features that the tests over all runs find, for each strength of the relation
  question
  planted number innovation correlation that the noise was chosen for
  measured number mean innovation correlation of the simulated features
  found number share of them that is found
  simulations count simulated features
  sorted by question planted

ranking: features by how closely they follow a metric
  metric
  rank number 1 is the strongest
  source layer feature
  group text group of the feature: topology, spectrum, norm, curvature, other
  n_models
  strength interval mean over models of |Spearman|
  over_norm interval strength less that of the plain weight norm
  sorted by metric rank source layer feature

scaling: power laws in model size of every feature and metric at the last step
  source layer feature
  law text power_law (a N^b) or power_law_with_offset (a N^b + c)
  n_models
  coefficient number a
  exponent interval b; Student's t, or an F profile for the law with an offset
  exponent_bootstrap_low number lower end of the published bootstrap of b
  exponent_bootstrap_high number upper end of the published bootstrap of b
  offset number c
  r_squared number share of the variance explained (of logarithms for the law without an offset)
  spearman number Spearman correlation of value and size
  p number its p-value
  reason
  sorted by source layer feature law

transitions: the step at which each series changes most, and the step from which it changes little
  model source layer feature
  n count checkpoints
  transition_step number step that ends the largest change
  change number that change, signed
  settled_step number first later step with a change below a tenth of it
  n_change_points count change points (PELT)
  reason
  sorted by model source layer feature

change_points: steps at which the slope of a series changes (PELT)
  model source layer feature step
  sorted by model source layer feature step

early_stopping: early stopping on a feature, compared with early stopping on the validation loss
  model source layer feature
  patience count checkpoints without a new record before the rule stops
  stop_step count step at which the feature stops the training
  triggered flag whether the rule stopped before the end
  metric_stop_step count step at which the validation loss stops it
  metric_triggered flag whether that rule stopped before the end
  steps_saved count steps between the two
  loss_given_up number least validation loss up to stop_step minus that up to metric_stop_step
  sorted by model source layer feature patience

early_stopping_summary: steps saved and loss given up by early stopping, mean over models
  source layer feature
  patience count checkpoints without a new record before the rule stops
  n_models
  steps_saved interval mean over models
  loss_given_up interval mean over models
  sorted by source layer feature patience

forecasts: forecasts of the final loss
  model fraction
  method text forecasting method
  forecast number forecast of the final loss
  low high calibrated_to own_low own_high
  actual number final loss, where the training is finished
  error number forecast less actual
  reason
  sorted by model fraction method

forecast_evaluation: the errors of each forecasting method
  fraction
  method text forecasting method
  n_models
  n_forecasts count forecasts that could be judged
  mae interval mean absolute error; bootstrap over models
  spearman number Spearman correlation of forecast and actual
  interval_coverage number share of intervals before calibration that contain the actual loss
  baseline text the best method that reads the loss alone, or the number of parameters alone
  n_compared count cells that both the method and the baseline forecast
  improvement_percent number error saved against the baseline
  improvement_low number lower end of its 95% interval
  improvement_high number upper end of its 95% interval
  improvement_p number signed-rank test against the baseline
  over_power_law_percent number error saved against the power law
  permutation_mae number error with randomly permuted final losses (ridge)
  permutation_p number share of permutations with an error at least as small
  note text limits of the numbers
  sorted by fraction method

score_forecasts: forecasts of the scores of tasks at the end of training
  model
  metric text the score
  fraction
  method text two_stages: from the forecast of the loss; power_law: from the score's own curve
  forecast number forecast of the score at the end
  low high calibrated_to own_low own_high
  actual number score at the end, where the training is finished
  error number forecast less actual
  reason
  sorted by model metric fraction method

score_evaluation: the errors of the forecasts of scores
  metric text the score
  fraction
  method text two_stages: from the forecast of the loss; power_law: from the score's own curve
  n_models
  mae number mean absolute error of the forecast score
  interval_coverage number share of intervals before calibration that contain the actual score
  sorted by metric fraction method

candidates: ways to spend the remaining compute, and the forecast loss at their end
  model fraction
  candidate text finish, extend, or start NAME; empty where there is no advice
  n_parameters
  steps count steps to come
  compute number compute of the candidate from now on, FLOP
  loss interval forecast loss at its end
  gain interval loss at the end of finishing less that of the candidate, nats per token
  probability number probability to be the best of the candidates
  at_stake number expected regret: expected difference of this loss to that of the best candidate, nats per token
  is_sure flag whether it is the best with a probability of at least 0.8, under a plan that is known
  is_live flag whether the training is not finished
  reason
  sorted by model fraction candidate

decisions: the choice of each policy at a share of a finished run, and its regret
  model fraction
  policy text advice, always_finish, stop_now or stop_at_random
  choice text the candidate that is chosen; the advice finishes where there is no forecast to be believed
  probability number probability to be the best of the candidates, by the advice
  n_candidates count candidates to choose from
  spent number compute spent when the decision is made, FLOP
  remaining number compute that will still be spent, FLOP
  loss number loss at the end of the choice
  best text the candidate with the least loss
  best_loss number loss at the end of it
  regret number loss of the choice less that of the best, at the same total compute
  truth text observed; or modelled, if one of the losses comes from a law fitted to all finished runs
  reason
  sorted by model fraction policy

decision_evaluation: the regret of each policy over models
  fraction
  policy text advice, always_finish, stop_now or stop_at_random
  n_decisions count decisions
  n_sure count decisions in which the advice was sure
  n_modelled count decisions with a modelled loss
  share_best number share of decisions for the best candidate
  regret interval mean over models
  against_finish interval regret of always finishing less that of the policy, mean over models
  sorted by fraction policy

comparison: published values beside those of this run
  source text publication
  table text table or figure of the publication
  model step
  quantity text what was published
  published number published value
  ours number value of this run
  difference number ours less published
  note text remark of the publication
  setting text how this run differs from the published one
  sorted by source table model step quantity

landscape_information: which features of the landscape distinguish checkpoints
  model
  feature text the feature of the landscape, of the whole model
  n_checkpoints count checkpoints
  n_draws count draws of a probe batch and directions at each
  mean number mean over the checkpoints
  spread_over_draws number standard deviation over the draws, root mean square over the checkpoints
  spread_over_training number standard deviation of the means over the checkpoints
  intraclass_correlation number share of the variance of one draw that is between checkpoints, by analysis of variance
  intraclass_correlation_trained number the same without the first checkpoint
  verdict text informative, uninformative or not tested
  reason text why it is not informative; empty if it is
  sorted by model feature

graph_dependence: how much the features of a loss surface depend on the choice of graph
  model feature
  n_checkpoints count checkpoints with a surface
  n_graphs count graphs compared
  lowest number smallest mean over the checkpoints
  lowest_graph text graph that has it
  highest number largest mean over the checkpoints
  highest_graph text graph that has it
  spread_over_graphs number standard deviation over graphs at one checkpoint
  spread_over_repeats number standard deviation over repeated measurements
  spread_over_training number standard deviation over checkpoints
  agreement number mean Spearman correlation between two graphs
  agreement_least number least of these correlations
  sorted by model feature

warnings: problems that affect numbers, and what can be done about them
  model
  steps text checkpoints that are affected; empty for the whole model
  concerns text feature, metric or file that is affected
  warning text what is wrong with it
  remedy text what can be done about it
  sorted by model concerns steps warning

summary: the questions of the project, answered by this run
  position count order of the questions
  question text the question
  verdict text the answer in a few words
  answer text the answer in at most 40 words
  numbers text the numbers of the answer
  sorted by position
"""
