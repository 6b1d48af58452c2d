"""What proves or teaches, and nobody serves traffic with.

Papers reproduced, simulated markets, attacks, trust models, sketches, retired browser APIs.
Nothing of the product imports it. Its commands load it when they are called.
"""
