"""Attacks on made-up data, whose truth is known, beside what privacy allows any attacker."""
