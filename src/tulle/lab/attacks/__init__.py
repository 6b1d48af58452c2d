"""Attacks on synthetic data, whose truth is known, beside what privacy allows any attacker."""
