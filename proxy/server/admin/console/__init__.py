"""The console: the files of its pages, and what only they ask for. Nothing here is loaded before somebody does."""
