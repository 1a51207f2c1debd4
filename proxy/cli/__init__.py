"""The verbs of the command line, one file each.

A verb's file has `register(subparsers)`, which describes its arguments, and `run(args) -> int`, which does the work and
gives the exit code. `proxy/__main__.py` imports only the requested verb, and a verb imports what it needs when it
runs, so that `--help` and a wrong argument answer at once.
"""
