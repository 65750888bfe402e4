"""The paper's experiment with eight seeds: which finding comes back, and how often the tests are wrong there."""
