"""A local page to plan before spending: the same answers as the command line, live.

The studio reads. It cannot spend, write or delete, and only this computer can reach it.
"""
