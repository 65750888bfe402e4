"""Laws of the loss curve: families, their prior, the model discrepancy, the fit, and their average."""
