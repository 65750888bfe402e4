"""What the tables hold, as text: names, types and meanings of columns; those of analyses: `analysis_table_definitions`.

A block a table: `name: what a row is`, a line a column, and the key, which identifies and sorts a row. A column is its
name, type and meaning, or one of the common ones, by its name alone. Types: text, count, flag, number; `interval` stands
for three numbers, the name and its 95% bounds `_low` and `_high`.
"""

DEFINITIONS = """
features: every number that describes a checkpoint
  model step source layer feature
  value number value of the feature, in the unit that docs/method.md gives
  sorted by model step source layer feature

diagrams: the bars of the persistence diagrams
  model step source layer dimension birth death
  sorted by model step source layer dimension birth death

last_diagrams: the same for the last checkpoint of every model, also for the weights
  model step source layer dimension birth death
  sorted by model step source layer dimension birth death

vectors: persistence diagrams as vectors of one length
  model step source
  vector text persistence_image or persistence_landscape
  index count place in the vector
  value number entry of the vector
  sorted by model step source vector index

metrics: every number that measures the quality of a checkpoint
  model step metric
  value number value of the metric; losses in nats per token
  sorted by model step metric

models: the models of the run
  model
  family text family; its models differ in size
  entry text entry of `models:` in the configuration; of a sweep, the size
  cell text cell of the model: runs that differ by their seed alone
  seed count seed of the training; of the run's random choices for models that were trained elsewhere
  n_parameters
  d_model count width, where it is known
  n_layers count blocks, where they are known
  n_heads count attention heads of a block, where they are known
  tokens_per_step count tokens that a training step reads, where it is known
  final_step count step at which the training ends
  learning_rate number peak learning rate, of models trained here
  weight_decay number weight decay, of models trained here
  batch_size count windows of text in a batch, of models trained here
  warmup_steps count steps over which the learning rate rises, where they are known
  shape text shape of the learning-rate schedule, of models trained here
  data_fraction number share of the training text that is read, of models trained here
  plan text source of the learning rates up to the end (given, rows, recognised), or why they are not known
  sorted by n_parameters model

schedules: the plans: the learning rate up to the end, in at most 2,000 rows for each model; linear in between
  model step
  learning_rate number learning rate of the update that follows the step
  sorted by model step

training: training log of one model, one row for each logged step (training/{model}.parquet)
  step
  loss number training loss of the step's batch, nats per token
  gradient_norm number norm of the gradient before clipping
  learning_rate number learning rate of the update that followed
  sorted by step

surfaces: loss surfaces around checkpoints
  model step
  plane text kind and extent of the plane: random_1, negative_0.3
  x number distance along the first direction, weight units
  y number distance along the second direction, weight units
  loss number loss at the point
  sorted by model step plane x y

path_surfaces: loss in the principal plane of the training trajectory, around the last checkpoint
  model step
  x number distance along the first principal direction, weight units
  y number distance along the second principal direction, weight units
  loss number loss at the point
  sorted by model step x y

trajectories: the checkpoints in the principal plane of their training trajectory
  model step
  x number coordinate along the first principal direction, weight units
  y number coordinate along the second principal direction, weight units
  distance number distance of the checkpoint from the plane, weight units
  sorted by model step

densities: spectral density of the Hessian
  model step
  eigenvalue number eigenvalue, loss per squared weight
  density number smoothed density there
  standard_error number standard error over the random probes
  sorted by model step eigenvalue

profiles: landscape profiles: the mass of each sublevel component, level by level
  model step
  direction text where the loss was sampled: a plane, a line, or a ball and its bowl
  component count sampled point of the minimum that names the component
  level number loss
  mass number share of all sampled points in the component at that level
  sorted by model step direction component level
"""
