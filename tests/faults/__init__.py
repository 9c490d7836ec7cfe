"""What happens when the machine, the user or another program gets in the way: `python -m tests.faults --help`."""
