"""What all tests need from the process they run in."""

import signal

# A shell that starts a command in the background has it ignore SIGINT, and its children too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
