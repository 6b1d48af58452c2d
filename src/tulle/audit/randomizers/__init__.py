"""Every randomizer as an auditor sees it: two neighbouring inputs, draws, and a claim."""
