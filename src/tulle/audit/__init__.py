"""Attacks on what is claimed: audits of training, of mechanisms and of labels."""
