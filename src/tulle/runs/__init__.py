"""Run folders: settings, records, checkpoints, and releases that are paid once."""
