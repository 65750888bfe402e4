"""The study of docs/study.md: does topology tell more of the loss than loss, norm and step do? 540 runs."""
