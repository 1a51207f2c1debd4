"""The console: the files for the browser, and the Python code that only they use.

The code is imported at the first request for it, so that a proxy whose console nobody opens does not load it.
"""
