"""Training of small language models: corpus, model, learning-rate schedules and trainer."""
